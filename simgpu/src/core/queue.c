/* A process's own queue on a device: submitting, asking, waiting, dropping. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "timeline.h"

/* Ends saturate here, so that sums with the clock never overflow: about 146 years. */
#define FAR_NS (UINT64_C(1) << 62)

/* A sleep may last this much longer than asked for, so the rest is waited for awake. */
#define OVERSLEEP_NS 60000

/* The longest sleep: what tells us that a device was lost meanwhile. */
#define SLEEP_NS 20000000

/* Locks the device with its timeline at now; false: this program cannot be a process of the node.
 */
static inline bool hold_now(unsigned device, struct sim_held *held)
{
    struct sim_view *view = sim_view_self();
    if (!view)
        return false;
    uint64_t now = sim_now();
    if (!sim_hold_as_process(view, device, held))
        return false;
    sim_advance(held, now);
    return true;
}

uint64_t sim_submit(unsigned device, uint64_t not_before, uint64_t duration_ns)
{
    struct sim_held held;

    if (!hold_now(device, &held))
        return not_before;
    struct sim_usage *usage = sim_usage_of(&held, held.number);
    uint64_t active = usage->active_ns;
    uint64_t horizon = usage->horizon_ns;
    uint64_t start = not_before < horizon ? not_before : horizon;
    if (start < active)
        start = active;
    uint64_t end = duration_ns < FAR_NS - start ? start + duration_ns : FAR_NS;
    if (end > horizon && !held.device->lost) {
        sim_set(&held, &usage->horizon_ns, end);
        if (active == horizon)
            sim_enlist(&held, held.number);
    }
    sim_unhold(&held);
    return end;
}

uint64_t sim_active(unsigned device)
{
    struct sim_held held;

    if (!hold_now(device, &held))
        return 0;
    uint64_t active = sim_usage_of(&held, held.number)->active_ns;
    sim_unhold(&held);
    return active;
}

bool sim_reached(unsigned device, uint64_t end)
{
    return sim_active(device) >= end;
}

/* Sleeps until the clock may show `when`, but never long. */
static void sleep_until(uint64_t now, uint64_t when)
{
    if (when > now + SLEEP_NS)
        when = now + SLEEP_NS;
    if (when > now + OVERSLEEP_NS) {
        when -= OVERSLEEP_NS;
        struct timespec moment = {.tv_sec = (time_t)(when / 1000000000),
                                  .tv_nsec = (long)(when % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
        return;
    }
    while (sim_now() < when)
        sched_yield();
}

int sim_wait(unsigned device, uint64_t end)
{
    struct sim_held held;

    for (;;) {
        if (!hold_now(device, &held))
            return -ENODEV;
        const struct sim_usage *usage = sim_usage_of(&held, held.number);
        uint64_t active = usage->active_ns;
        bool pending = active < end;
        bool dropped = usage->horizon_ns < end;
        bool lost = held.device->lost;
        uint64_t now = held.device->time_ns;
        uint64_t delay = pending && !dropped ? sim_turn_delay(&held, held.number) : 0;
        sim_unhold(&held);
        if (lost)
            return -EIO;
        if (!pending)
            return 0;
        if (dropped)
            return -ECANCELED;
        /* The earliest possible end; when others come between, we look again. */
        sleep_until(now, now + delay + (end - active));
    }
}

uint64_t sim_wall(unsigned device, uint64_t end)
{
    struct sim_view *view = sim_view_self();
    struct sim_held held;

    if (!view || !sim_hold_as_process(view, device, &held))
        return sim_now();
    const struct sim_usage *usage = sim_usage_of(&held, held.number);
    const struct sim_history *history = sim_history_of(&held, held.number);
    uint64_t wall = held.device->time_ns;
    uint64_t high = usage->slice_count;
    uint64_t low = high > SIM_SLICES ? high - SIM_SLICES : 0;
    uint64_t oldest = low;
    /* The last slice that starts before `end`: at its very start a slice has reached nothing. */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (history->slices[middle % SIM_SLICES].active_ns < end)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > oldest) {
        uint64_t slice = (low - 1) % SIM_SLICES;
        wall = history->slices[slice].wall_ns + (end - history->slices[slice].active_ns);
    } else if (usage->slice_count > 0) {
        wall = history->slices[oldest % SIM_SLICES].wall_ns;
    }
    sim_unhold(&held);
    return wall;
}

void sim_cancel(unsigned device)
{
    struct sim_held held;

    if (!hold_now(device, &held))
        return;
    struct sim_usage *usage = sim_usage_of(&held, held.number);
    if (sim_is_runnable(held.device, held.number)) {
        sim_set(&held, &usage->horizon_ns, usage->active_ns);
        sim_retire(&held, held.number);
    }
    sim_unhold(&held);
}
