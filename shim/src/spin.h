/*
 * A lock inside one process, for sections of a few instructions. All zeroes is free.
 *
 * Our own, because pthread's is a library of its own before glibc 2.34 and because memory that is
 * wiped in a forked child (see private.h) must come up as a free lock there.
 */
#pragma once

#include <sched.h>
#include <stdint.h>

static inline void spin_lock(uint32_t *lock)
{
    while (__builtin_expect(__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0, 0))
        sched_yield();
}

static inline void spin_unlock(uint32_t *lock)
{
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}
