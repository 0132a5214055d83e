/* A program that asks whether there is a driver on a machine that has none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int cuInit(unsigned flags) __attribute__((weak));

int main(void)
{
    printf("dlopen: %s\n", dlopen("libcuda.so.1", RTLD_NOW) ? "there" : "none");
    dlerror();
    const void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    const char *why = dlerror();
    printf("default: %s, dlerror %s\n", found ? "there" : "none", why ? "says so" : "says nothing");
    printf("next: %s\n", dlsym(RTLD_NEXT, "cuInit") ? "there" : "none");
    /* A weak reference is bound to the preloaded library; what it answers is what counts. */
    printf("weak call: %d\n", cuInit ? cuInit(0) : 100);
    return 0;
}
