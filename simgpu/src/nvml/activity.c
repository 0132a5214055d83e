/* Utilisation from the samples that the node keeps. */
#include "activity.h"

#include <time.h>

/* A step of the wall clock by less than this is no reason to shift all time stamps. */
#define CLOCK_TOLERANCE_NS INT64_C(10000000)

/*
 * The wall clock minus the node's clock. Kept, because a time stamp that a client passes back must
 * mean the same window again; renewed only when the wall clock has been set.
 */
static int64_t wall_offset_ns(void)
{
    static int64_t kept;
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t offset = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - (int64_t)sim_now();
    int64_t known = __atomic_load_n(&kept, __ATOMIC_RELAXED);
    int64_t drift = offset - known;
    if (known && drift < CLOCK_TOLERANCE_NS && drift > -CLOCK_TOLERANCE_NS)
        return known;
    __atomic_store_n(&kept, offset, __ATOMIC_RELAXED);
    return offset;
}

uint64_t last_window(const struct gpu *gpu)
{
    return __atomic_load_n(&gpu->device->time_ns, __ATOMIC_RELAXED) / SIM_WINDOW_NS - 1;
}

unsigned long long window_timestamp(uint64_t window)
{
    int64_t end_ns = (int64_t)((window + 1) * SIM_WINDOW_NS);
    return (unsigned long long)(end_ns + wall_offset_ns()) / 1000;
}

uint64_t first_window_after(const struct gpu *gpu, unsigned long long timestamp)
{
    uint64_t newest = last_window(gpu);
    uint64_t window = newest >= SIM_SAMPLES - 1 ? newest - (SIM_SAMPLES - 1) : 0;
    while (window <= newest && window_timestamp(window) <= timestamp)
        window++;
    return window;
}

/* Each sample of the process that has the slot; what lies behind them was its predecessors'. */
#define EACH_SAMPLE(usage, number)                                                                 \
    for (uint64_t number = 0, count = __atomic_load_n(&(usage)->sample_count, __ATOMIC_RELAXED);   \
         number < (count < SIM_SAMPLES ? count : SIM_SAMPLES); number++)

uint64_t busy_within(const struct sim_usage *usage, uint64_t first, uint64_t last)
{
    uint64_t busy_ns = 0;
    EACH_SAMPLE(usage, number)
    {
        uint64_t window = __atomic_load_n(&usage->samples[number].window, __ATOMIC_RELAXED);
        if (window >= first && window <= last)
            busy_ns += __atomic_load_n(&usage->samples[number].busy_ns, __ATOMIC_RELAXED);
    }
    return busy_ns;
}

uint64_t first_busy_window(const struct sim_usage *usage)
{
    uint64_t first = UINT64_MAX;
    EACH_SAMPLE(usage, number)
    {
        uint64_t window = __atomic_load_n(&usage->samples[number].window, __ATOMIC_RELAXED);
        if (window < first)
            first = window;
    }
    return first;
}

unsigned window_percent(const struct gpu *gpu, uint64_t window)
{
    uint64_t busy_ns = 0;
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++)
        busy_ns += busy_within(&gpu->node->processes[slot].usages[gpu->index], window, window);
    uint64_t percent = (busy_ns * 100 + SIM_WINDOW_NS / 2) / SIM_WINDOW_NS;
    return percent < 100 ? (unsigned)percent : 100;
}

unsigned recent_percent(const struct gpu *gpu)
{
    unsigned percent = sim_utilization(gpu->node, gpu->index);
    return percent < 100 ? percent : 100;
}

unsigned memory_percent(unsigned percent)
{
    return percent * 2 / 5;
}

uint64_t total_busy_ns(const struct gpu *gpu)
{
    static uint64_t highest[SIM_DEVICES];
    uint64_t busy_ns = __atomic_load_n(&gpu->device->energy_busy_ns, __ATOMIC_RELAXED);

    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        const struct sim_usage *usage = &gpu->node->processes[slot].usages[gpu->index];
        busy_ns += __atomic_load_n(&usage->active_ns, __ATOMIC_RELAXED);
    }
    /* A process that ends while we add up may be missed or counted twice for a moment. */
    uint64_t known = __atomic_load_n(&highest[gpu->index], __ATOMIC_RELAXED);
    while (known < busy_ns &&
           !__atomic_compare_exchange_n(&highest[gpu->index], &known, busy_ns, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return known < busy_ns ? busy_ns : known;
}
