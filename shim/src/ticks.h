/* A clock that costs one instruction, for "not again so soon". */
#pragma once

#include <stdint.h>

/* Ticks run at any speed; TICKS_PER_LOOK of them take between 0.1 and 0.9 seconds. */
#if defined(__x86_64__)

#define TICKS_PER_LOOK (UINT64_C(1) << 29) /* cycle counters run at 0.6 to 5 GHz */

static inline uint64_t ticks(void)
{
    return __builtin_ia32_rdtsc();
}

#elif defined(__aarch64__)

#define TICKS_PER_LOOK ticks_per_look()

static inline uint64_t ticks(void)
{
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
}

static inline uint64_t ticks_per_look(void)
{
    uint64_t per_second;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(per_second));
    return per_second / 2;
}

#else
#error "no cycle counter is known for this processor"
#endif
