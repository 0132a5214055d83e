/* Device memory as a number: who has how much of it. */
#include <errno.h>

#include "lock.h"
#include "slot.h"

/* In null mode the process only counts for itself, without a lock. */
static inline bool count_only(struct sim_view *view, unsigned device, uint64_t bytes)
{
    if (!view->state->null_mode)
        return false;
    uint32_t ticket = __atomic_load_n(&view->process, __ATOMIC_ACQUIRE);
    if (!ticket && (ticket = sim_slot_take(view)) == 0)
        return true;
    struct sim_process *process = &view->state->processes[sim_ticket_number(ticket)];
    __atomic_fetch_add(&process->usages[device].used_bytes, bytes, __ATOMIC_RELAXED);
    return true;
}

static int book(struct sim_view *view, unsigned device, uint64_t bytes)
{
    struct sim_held held;
    int result = -ENOMEM;

    if (!sim_hold_as_process(view, device, &held))
        return -EUSERS;
    uint64_t used = held.device->used_bytes;
    if (bytes <= held.device->profile.memory_bytes - used) {
        struct sim_usage *usage = sim_usage_of(&held, held.number);
        sim_set(&held, &held.device->used_bytes, used + bytes);
        sim_set(&held, &usage->used_bytes, usage->used_bytes + bytes);
        result = 0;
    }
    sim_unhold(&held);
    return result;
}

int sim_reserve(unsigned device, uint64_t bytes)
{
    struct sim_view *view = sim_view_self();
    if (!view)
        return -ENODEV;
    if (count_only(view, device, bytes))
        return 0;
    int result = book(view, device, bytes);
    if (result == -ENOMEM) {
        sim_slots_bury_dead(view);
        result = book(view, device, bytes);
    }
    return result;
}

void sim_release(unsigned device, uint64_t bytes)
{
    struct sim_view *view = sim_view_self();
    struct sim_held held;

    if (!view || count_only(view, device, 0 - bytes))
        return;
    if (!sim_hold_as_process(view, device, &held))
        return;
    struct sim_usage *usage = sim_usage_of(&held, held.number);
    /* A forked child may free what its parent has: that is not the child's to give back. */
    uint64_t ours = bytes < usage->used_bytes ? bytes : usage->used_bytes;
    sim_set(&held, &held.device->used_bytes, held.device->used_bytes - ours);
    sim_set(&held, &usage->used_bytes, usage->used_bytes - ours);
    sim_unhold(&held);
}

uint64_t sim_free_bytes(unsigned device)
{
    struct sim_view *view = sim_view_self();
    if (!view)
        return 0;
    sim_slots_bury_dead(view);
    const struct sim_device *shared = &view->state->devices[device];
    return shared->profile.memory_bytes - __atomic_load_n(&shared->used_bytes, __ATOMIC_RELAXED);
}

void sim_count_launch(unsigned device)
{
    struct sim_view *view = sim_view_self();
    if (!view)
        return;
    uint32_t ticket = __atomic_load_n(&view->process, __ATOMIC_ACQUIRE);
    if (__builtin_expect(ticket == 0, 0) && (ticket = sim_slot_take(view)) == 0)
        return;
    struct sim_process *process = &view->state->processes[sim_ticket_number(ticket)];
    __atomic_fetch_add(&process->usages[device].launches, 1, __ATOMIC_RELAXED);
}
