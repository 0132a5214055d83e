/* System calls younger than the C library that a release build is linked against (glibc 2.17). */
#pragma once

#include <linux/memfd.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A file that lives in memory only; -1 when there can be none. */
static inline int kernel_memory_file(const char *name)
{
    return (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC);
}

static inline bool kernel_random(void *bytes, size_t count)
{
    return syscall(SYS_getrandom, bytes, count, 0) == (long)count;
}
