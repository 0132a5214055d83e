/* Device memory as a number: who has how much of it. */
#include <errno.h>

#include "lock.h"
#include "slot.h"

/* Becomes a process of the node, for who is none yet; NULL: there is no slot for us. */
static __attribute__((noinline, cold)) struct sim_process *become_process(void)
{
    struct sim_view *view = sim_view_self();
    bool attached = view && sim_slot_take(view) != 0;
    return attached ? __atomic_load_n(&view->own, __ATOMIC_ACQUIRE) : NULL;
}

/* What is ours alone, to count in without a lock. */
static inline struct sim_process *own_process(void)
{
    struct sim_view *view = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    struct sim_process *own = view ? __atomic_load_n(&view->own, __ATOMIC_ACQUIRE) : NULL;
    return __builtin_expect(own != NULL, 1) ? own : become_process();
}

/* In null mode the process only counts for itself. */
static inline int count_bytes(unsigned device, uint64_t bytes)
{
    struct sim_process *own = own_process();
    if (!own)
        return -EUSERS;
    __atomic_fetch_add(&own->usages[device].used_bytes, bytes, __ATOMIC_RELAXED);
    return 0;
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
    if (view->state->null_mode)
        return count_bytes(device, bytes);
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

    if (!view)
        return;
    if (view->state->null_mode) {
        count_bytes(device, 0 - bytes);
        return;
    }
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
    struct sim_process *own = own_process();
    if (own)
        __atomic_fetch_add(&own->usages[device].launches, 1, __ATOMIC_RELAXED);
}
