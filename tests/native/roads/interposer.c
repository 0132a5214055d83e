/*
 * Another preloaded library that stands before some of the same functions, as profilers do: it
 * counts, and calls what comes after it. With OVERRIDES_DLSYM it answers dlsym, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_abi.h"

static unsigned calls;

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    static __typeof__(&cuMemAlloc_v2) next;
    if (next == NULL)
        next = (__typeof__(next))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    calls++;
    return next(address, bytes);
}

#ifdef OVERRIDES_DLSYM
void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (next == NULL)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", LIBC_VERSION);
    if (strcmp(name, "cuMemAlloc_v2") == 0 && handle != RTLD_NEXT)
        return (void *)cuMemAlloc_v2;
    return next(handle, name);
}
#endif

__attribute__((destructor)) static void report(void)
{
    fprintf(stderr, "interposer: %u\n", calls);
}
