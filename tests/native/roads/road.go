// The driver's functions as Go programs find them: cgo around dlopen and dlsym, from many threads.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
static void *driver(void) { return dlopen("libcuda.so.1", RTLD_NOW); }
static int call_init(void *f) { return ((int (*)(unsigned))f)(0); }
static int call_make(void *f, void **c) { return ((int (*)(void **, unsigned, int))f)(c, 0, 0); }
static int call_info(void *f, size_t *a, size_t *b) { return ((int (*)(size_t *, size_t *))f)(a, b); }
static int call_alloc(void *f, unsigned long long *a, size_t n)
{
    return ((int (*)(unsigned long long *, size_t))f)(a, n);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

func main() {
	runtime.LockOSThread()
	driver := C.driver()
	find := func(name string) unsafe.Pointer { return C.dlsym(driver, C.CString(name)) }
	var context unsafe.Pointer
	var free, total C.size_t
	var address C.ulonglong
	C.call_init(find("cuInit"))
	C.call_make(find("cuCtxCreate_v2"), &context)
	C.call_info(find("cuMemGetInfo_v2"), &free, &total)
	tooMuch := C.call_alloc(find("cuMemAlloc_v2"), &address, 2<<30)
	little := C.call_alloc(find("cuMemAlloc_v2"), &address, 16<<20)
	fmt.Printf("total=%d alloc=%d little=%d\n", total>>20, tooMuch, little)
}
