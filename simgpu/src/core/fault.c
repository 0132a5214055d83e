/* Faults on request: Xid events, a lost device, calls that fail or take long. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "timeline.h"
#include "python_api.h"

/* What the two APIs answer when the device is gone. */
enum { CUDA_UNKNOWN = 999, NVML_GPU_IS_LOST = 15 };

static void arm(struct sim_held *held)
{
    struct sim_device *device = held->device;
    bool armed = device->lost;
    for (unsigned fault = 0; fault < SIM_FAULTS; fault++)
        armed = armed || device->faults[fault].call != 0;
    sim_set_half(held, &device->armed, armed);
}

static void remove_fault(struct sim_held *held, struct sim_pending_fault *fault)
{
    sim_set_half(held, &fault->call, 0);
    arm(held);
}

static bool hits(const struct sim_pending_fault *fault, enum sim_call call)
{
    return fault->call == (uint32_t)call || (fault->call == SIM_CALL_ANY && call != SIM_CALL_NVML);
}

static int consume(struct sim_held *held, enum sim_call call, uint64_t *delay_ns)
{
    struct sim_device *device = held->device;

    if (device->lost)
        return call == SIM_CALL_NVML ? NVML_GPU_IS_LOST : CUDA_UNKNOWN;
    for (unsigned index = 0; index < SIM_FAULTS; index++) {
        struct sim_pending_fault *fault = &device->faults[index];
        if (!hits(fault, call))
            continue;
        int error = fault->error;
        *delay_ns = fault->delay_ns;
        if (fault->uses == 1)
            remove_fault(held, fault);
        else if (fault->uses != SIM_FAULT_STAYS)
            sim_set(held, &fault->uses, fault->uses - 1);
        return error;
    }
    return 0;
}

static __attribute__((noinline, cold)) int hit(struct sim_view *view, unsigned device,
                                               enum sim_call call)
{
    struct sim_held held;
    uint64_t delay_ns = 0;

    if (!sim_hold(view, device, &held))
        return 0;
    int error = consume(&held, call, &delay_ns);
    sim_unhold(&held);
    if (delay_ns) {
        struct timespec delay = {.tv_sec = (time_t)(delay_ns / 1000000000),
                                 .tv_nsec = (long)(delay_ns % 1000000000)};
        nanosleep(&delay, NULL);
    }
    return error;
}

int sim_fault(unsigned device, enum sim_call call)
{
    /* Who has not opened the node yet has nothing that could fail. */
    struct sim_view *view = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    if (!view || !__atomic_load_n(&view->state->devices[device].armed, __ATOMIC_RELAXED))
        return 0;
    return hit(view, device, call);
}

int sim_inject(struct sim_state *state, unsigned device, uint32_t call, int32_t error,
               uint64_t uses, uint64_t delay_ns)
{
    struct sim_held held;
    int result = -ENOSPC;

    if (device >= state->device_count || !sim_hold(sim_view_of(state), device, &held))
        return -ENODEV;
    for (unsigned index = 0; index < SIM_FAULTS && result != 0; index++) {
        struct sim_pending_fault *fault = &held.device->faults[index];
        if (fault->call != 0)
            continue;
        sim_set_half(&held, (uint32_t *)&fault->error, (uint32_t)error);
        sim_set(&held, &fault->uses, uses);
        sim_set(&held, &fault->delay_ns, delay_ns);
        sim_set_half(&held, &fault->call, call);
        arm(&held);
        result = 0;
    }
    sim_unhold(&held);
    return result;
}

int sim_post_xid(struct sim_state *state, unsigned device, uint64_t xid, uint64_t ecc_errors)
{
    struct sim_held held;

    if (device >= state->device_count || !sim_hold(sim_view_of(state), device, &held))
        return -ENODEV;
    uint64_t event = held.device->xid_count % SIM_XIDS;
    sim_set(&held, &held.device->xids[event].xid, xid);
    sim_set(&held, &held.device->xids[event].wall_ns, sim_now());
    sim_set(&held, &held.device->ecc_errors, held.device->ecc_errors + ecc_errors);
    sim_set(&held, &held.device->xid_count, held.device->xid_count + 1);
    sim_unhold(&held);
    return 0;
}

/* Nothing runs on a lost device, so what was queued is gone. */
static void drop_queues(struct sim_held *held)
{
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (!sim_is_runnable(held->device, slot))
            continue;
        struct sim_usage *usage = sim_usage_of(held, slot);
        sim_set(held, &usage->horizon_ns, usage->active_ns);
        sim_retire(held, slot);
        sim_commit(held);
    }
}

int sim_lose(struct sim_state *state, unsigned device)
{
    struct sim_held held;

    if (device >= state->device_count || !sim_hold(sim_view_of(state), device, &held))
        return -ENODEV;
    sim_advance(&held, sim_now());
    sim_set_half(&held, &held.device->lost, 1);
    arm(&held);
    sim_commit(&held);
    drop_queues(&held);
    sim_unhold(&held);
    return 0;
}

int sim_clear(struct sim_state *state, unsigned device)
{
    struct sim_held held;

    if (device >= state->device_count || !sim_hold(sim_view_of(state), device, &held))
        return -ENODEV;
    for (unsigned index = 0; index < SIM_FAULTS; index++)
        sim_set_half(&held, &held.device->faults[index].call, 0);
    sim_set_half(&held, &held.device->lost, 0);
    arm(&held);
    sim_unhold(&held);
    return 0;
}
