/*
 * The C library's own dynamic-linking functions, found without calling any of them.
 */
#pragma once

#include <stdbool.h>
#include <dlfcn.h>

/* What the overrides in roads.c stand before. A function that this libc lacks is NULL. */
struct libc_calls {
    void *(*dlsym)(void *handle, const char *name);
    void *(*dlvsym)(void *handle, const char *name, const char *version);
    void *(*dlopen)(const char *file, int flags);
    void *(*dlmopen)(long namespace, const char *file, int flags);
    int (*dlinfo)(void *handle, int request, void *answer);
    int (*dladdr)(const void *address, Dl_info *info);
    char *(*dlerror)(void);
};

/* Filled on first use and the same ever after; never allocates. */
const struct libc_calls *libc_calls(void);
