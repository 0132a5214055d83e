/* The node's clock, in a file of its own: tests put another one in its place. */
#define _GNU_SOURCE
#include "core.h"

#include <time.h>

uint64_t sim_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
