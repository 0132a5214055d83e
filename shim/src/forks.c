/*
 * Asks libc to be told of forks.
 *
 * glibc's pthread_atfork is a static function around a call that only glibc has, musl's is a
 * function like any other. One library for both refers to each weakly, and takes what is there.
 */
#include "forks.h"

#include <stddef.h>

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *library) __attribute__((weak));
extern int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

bool forks_watch(void (*in_child)(void))
{
    if (__register_atfork != NULL)
        return __register_atfork(NULL, NULL, in_child, &__dso_handle) == 0;
    return pthread_atfork == NULL || pthread_atfork(NULL, NULL, in_child) == 0;
}
