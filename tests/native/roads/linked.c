/*
 * Functions by link-time symbols: in a program, in its constructors, in a library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "walk.h"

static void *linked(const char *name)
{
#define LINKED(symbol)                                                                             \
    if (strcmp(name, #symbol) == 0)                                                                \
        return (void *)symbol;
    LINKED(cuInit)
    LINKED(cuDeviceGetCount)
    LINKED(cuDeviceGet)
    LINKED(cuCtxCreate_v2)
    LINKED(cuCtxDestroy_v2)
    LINKED(cuMemGetInfo_v2)
    LINKED(cuMemAlloc_v2)
    LINKED(cuMemAllocManaged)
    LINKED(cuMemAllocPitch_v2)
    LINKED(cuMemCreate)
    LINKED(cuMemAllocAsync)
    LINKED(cuArrayCreate_v2)
    LINKED(cuMemFree_v2)
    return NULL;
}

#if defined(IN_CONSTRUCTOR)
__attribute__((constructor)) static void before_main(void)
{
    walk(linked);
}

int main(void)
{
    return 0;
}
#elif defined(IN_LIBRARY)
static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void *own_dlsym(const char *name)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

int walk_linked(void)
{
    return walk(linked);
}

int walk_next(void)
{
    return walk(next);
}

int walk_dlsym(void)
{
    return walk(own_dlsym);
}
#else
int main(void)
{
    return walk(linked);
}
#endif
