/* Looking at a node from outside: settled, and one device at a time as of one moment. */
#include <errno.h>
#include <string.h>

#include "slot.h"
#include "timeline.h"
#include "python_api.h"

struct sim_state *sim_open(const char *path, char *why, size_t why_bytes)
{
    struct sim_view *view = sim_view_open(path, why, why_bytes);
    return view ? view->state : NULL;
}

void sim_close(struct sim_state *state)
{
    struct sim_view *view = sim_view_of(state);
    if (view)
        sim_view_close(view);
}

void sim_settle(struct sim_state *state)
{
    struct sim_view *view = sim_view_of(state);
    struct sim_held held;

    if (!view)
        return;
    sim_slots_bury_dead(view);
    for (unsigned device = 0; device < state->device_count; device++) {
        if (!sim_hold(view, device, &held))
            return;
        sim_advance(&held, sim_now());
        sim_unhold(&held);
    }
}

/* How long a process was busy in a window that is still remembered. */
static uint64_t busy_in(const struct sim_usage *usage, uint64_t window)
{
    uint64_t count = __atomic_load_n(&usage->sample_count, __ATOMIC_RELAXED);
    for (uint64_t back = 1; back <= count && back <= SIM_SAMPLES; back++) {
        uint64_t sample = (count - back) % SIM_SAMPLES;
        uint64_t seen = __atomic_load_n(&usage->samples[sample].window, __ATOMIC_RELAXED);
        if (seen == window)
            return __atomic_load_n(&usage->samples[sample].busy_ns, __ATOMIC_RELAXED);
        if (seen < window)
            break;
    }
    return 0;
}

unsigned sim_utilization(const struct sim_state *state, unsigned device)
{
    uint64_t time = __atomic_load_n(&state->devices[device].time_ns, __ATOMIC_RELAXED);
    uint64_t busy = 0;

    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (__atomic_load_n(&state->processes[slot].pid, __ATOMIC_RELAXED) != 0)
            busy += busy_in(&state->processes[slot].usages[device], time / SIM_WINDOW_NS - 1);
    }
    return busy < SIM_WINDOW_NS ? (unsigned)(busy * 100 / SIM_WINDOW_NS) : 100;
}

int sim_read_device(struct sim_state *state, unsigned device, struct sim_device_reading *reading)
{
    struct sim_held held;

    if (device >= state->device_count || !sim_hold(sim_view_of(state), device, &held))
        return -ENODEV;
    sim_advance(&held, sim_now());
    const struct sim_device *shared = held.device;
    reading->time_ns = shared->time_ns;
    reading->idle_ns = shared->idle_ns;
    reading->used_bytes = shared->used_bytes;
    reading->gone_busy_ns = shared->energy_busy_ns;
    reading->gone_launches = shared->gone_launches;
    reading->xid_count = shared->xid_count;
    reading->ecc_errors = shared->ecc_errors;
    reading->last_xid =
        shared->xid_count ? shared->xids[(shared->xid_count - 1) % SIM_XIDS].xid : 0;
    reading->lost = shared->lost;
    memset(reading->usages, 0, sizeof(reading->usages));
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        uint32_t generation = __atomic_load_n(&state->processes[slot].generation, __ATOMIC_RELAXED);
        if (generation == 0)
            continue; /* nobody, so nothing: and its page need not exist */
        const struct sim_usage *usage = sim_usage_of(&held, slot);
        reading->usages[slot].generation = generation;
        reading->usages[slot].used_bytes = usage->used_bytes;
        reading->usages[slot].active_ns = usage->active_ns;
        reading->usages[slot].horizon_ns = usage->horizon_ns;
        reading->usages[slot].launches = __atomic_load_n(&usage->launches, __ATOMIC_RELAXED);
    }
    reading->utilization_percent = sim_utilization(state, device);
    sim_unhold(&held);
    return 0;
}

int sim_read_process(struct sim_state *state, unsigned slot, struct sim_process_reading *reading)
{
    struct sim_held held;

    if (slot >= SIM_PROCESSES || !sim_hold_slots(sim_view_of(state), &held))
        return -ENODEV;
    const struct sim_process *process = &state->processes[slot];
    reading->pid = process->pid;
    reading->generation = process->generation;
    reading->pid_namespace = process->pid_namespace;
    reading->start_ticks = process->start_ticks;
    memcpy(reading->name, process->name, sizeof(reading->name));
    sim_unhold(&held);
    return 0;
}
