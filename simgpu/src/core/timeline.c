/*
 * Moving the timeline.
 *
 * One step lasts until something changes: the turn is over, the process has nothing left, a
 * sampling window ends, or now. Between steps two things hold: the time since the node was made is
 * the sum of all active times and the idle time, and if anybody is runnable, so is who has the
 * turn.
 */
#include "timeline.h"

#include "number.h"
#include "slot.h"

enum { WORDS = SIM_PROCESSES / 64 };

/* How often, at most, runnable processes are looked at for dead ones. */
#define CHECK_NS 50000000

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether anybody but `number`, which may be an observer's, is runnable. */
static inline bool others_runnable(const struct sim_device *device, unsigned number)
{
    return device->runnable_count > (number < SIM_PROCESSES && sim_is_runnable(device, number));
}

/* The runnable slot after `slot`, round the end; `slot` itself comes last. -1: nobody. */
static int next_runnable(const struct sim_device *device, unsigned slot)
{
    for (unsigned step = 1; step <= WORDS + 1; step++) {
        unsigned from = step == 1 ? slot + 1 : (slot / 64 + step - 1) * 64;
        unsigned word = from / 64 % WORDS;
        uint64_t candidates = device->runnable[word];
        if (step == 1)
            candidates &= from % 64 ? ~UINT64_C(0) << from % 64 : ~UINT64_C(0);
        if (candidates)
            return (int)(word * 64 + (unsigned)__builtin_ctzll(candidates));
    }
    return -1;
}

static void pass_turn(struct sim_held *held)
{
    struct sim_device *device = held->device;
    int next = next_runnable(device, (unsigned)device->turn);
    if (next >= 0)
        sim_set(held, &device->turn, (uint64_t)next);
    sim_set(held, &device->turn_started_ns, device->time_ns);
}

void sim_enlist(struct sim_held *held, unsigned slot)
{
    struct sim_device *device = held->device;
    uint64_t *word = &device->runnable[slot / 64];

    if (device->runnable_count == 0) {
        sim_set(held, &device->turn, slot);
        sim_set(held, &device->turn_started_ns, device->time_ns);
    }
    sim_set(held, word, *word | UINT64_C(1) << slot % 64);
    sim_set(held, &device->runnable_count, device->runnable_count + 1);
}

void sim_retire(struct sim_held *held, unsigned slot)
{
    struct sim_device *device = held->device;
    uint64_t *word = &device->runnable[slot / 64];

    sim_set(held, word, *word & ~(UINT64_C(1) << slot % 64));
    sim_set(held, &device->runnable_count, device->runnable_count - 1);
    if (device->turn == slot)
        pass_turn(held);
}

uint64_t sim_turn_delay(const struct sim_held *held, unsigned slot)
{
    const struct sim_device *device = held->device;
    if (device->turn == slot)
        return 0;
    const struct sim_usage *usage = &held->state->processes[device->turn].usages[held->index];
    uint64_t used = (device->time_ns - device->turn_started_ns) % SIM_SLICE_NS;
    return earlier(SIM_SLICE_NS - used, usage->horizon_ns - usage->active_ns);
}

/* Where the process's time from now on lies on the clock, unless that follows from before. */
static void chronicle(struct sim_held *held, struct sim_usage *usage, struct sim_history *history)
{
    uint64_t time = held->device->time_ns;
    uint64_t last = (usage->slice_count - 1) % SIM_SLICES;

    if (usage->slice_count > 0 &&
        time - history->slices[last].wall_ns == usage->active_ns - history->slices[last].active_ns)
        return;
    uint64_t fresh = usage->slice_count % SIM_SLICES;
    sim_set(held, &history->slices[fresh].active_ns, usage->active_ns);
    sim_set(held, &history->slices[fresh].wall_ns, time);
    sim_set(held, &usage->slice_count, usage->slice_count + 1);
}

/* What NVML will say about a sampling window. */
static void sample(struct sim_held *held, struct sim_usage *usage, uint64_t window,
                   uint64_t busy_ns)
{
    uint64_t last = (usage->sample_count - 1) % SIM_SAMPLES;

    if (usage->sample_count > 0 && usage->samples[last].window == window) {
        sim_set(held, &usage->samples[last].busy_ns, usage->samples[last].busy_ns + busy_ns);
        return;
    }
    uint64_t fresh = usage->sample_count % SIM_SAMPLES;
    sim_set(held, &usage->samples[fresh].window, window);
    sim_set(held, &usage->samples[fresh].busy_ns, busy_ns);
    sim_set(held, &usage->sample_count, usage->sample_count + 1);
}

/* Adds the time from the device's to `until`, or to an earlier end that it answers, to a process's
 * samples: nothing crosses the end of a window, except that windows too old to be remembered are
 * passed in one go. */
static uint64_t sample_until(struct sim_held *held, struct sim_usage *usage, uint64_t until)
{
    uint64_t time = held->device->time_ns;
    uint64_t window = time / SIM_WINDOW_NS;
    uint64_t window_end = (window + 1) * SIM_WINDOW_NS;

    if (until > window_end) {
        uint64_t last = until / SIM_WINDOW_NS;
        if (last - window > SIM_SAMPLES)
            return (last - SIM_SAMPLES) * SIM_WINDOW_NS;
        until = window_end;
    }
    sample(held, usage, window, until - time);
    return until;
}

static void step(struct sim_held *held, uint64_t now)
{
    struct sim_device *device = held->device;
    unsigned slot = (unsigned)device->turn;
    uint64_t time = device->time_ns;
    uint64_t until = now;

    if (!sim_is_runnable(device, slot)) {
        sim_set(held, &device->idle_ns, device->idle_ns + (now - time));
        sim_set(held, &device->time_ns, now);
        return;
    }
    bool contended = device->runnable_count > 1;
    if (contended) {
        /* More than a slice since the turn began: it was alone, and began turn after turn. */
        uint64_t used = time - device->turn_started_ns;
        if (used >= SIM_SLICE_NS)
            sim_set(held, &device->turn_started_ns, time - used % SIM_SLICE_NS);
        until = earlier(until, device->turn_started_ns + SIM_SLICE_NS);
    }
    struct sim_usage *usage = sim_usage_of(held, slot);
    until = earlier(until, time + (usage->horizon_ns - usage->active_ns));
    until = sample_until(held, usage, until);
    chronicle(held, usage, sim_history_of(held, slot));
    sim_set(held, &usage->active_ns, usage->active_ns + (until - time));
    sim_set(held, &device->time_ns, until);
    if (usage->active_ns == usage->horizon_ns)
        sim_retire(held, slot);
    else if (contended && until == device->turn_started_ns + SIM_SLICE_NS)
        pass_turn(held);
}

/* A dead process's queue would go on taking turns: look for them now and then. */
static void drop_dead(struct sim_held *held, uint64_t now)
{
    struct sim_device *device = held->device;

    sim_set(held, &device->checked_ns, now);
    sim_commit(held);
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (sim_is_runnable(device, slot) && slot != held->number &&
            !sim_number_taken(held->view, slot))
            sim_slot_wipe(held, slot);
    }
}

void sim_advance(struct sim_held *held, uint64_t now)
{
    struct sim_device *device = held->device;

    if (now > device->checked_ns + CHECK_NS && others_runnable(device, held->number))
        drop_dead(held, now);
    while (device->time_ns < now) {
        step(held, now);
        sim_commit(held);
    }
}
