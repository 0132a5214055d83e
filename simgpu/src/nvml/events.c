/*
 * Event sets: awaiting Xid and ECC errors.
 *
 * A set remembers, for each of its devices, how many errors the node had counted when it last
 * looked. There is no daemon to wake anybody, so waiting is looking again every POLL_NS.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ecc.h"
#include "session.h"
#include "traits.h"

#define POLL_NS UINT64_C(20000000)

struct registration {
    unsigned long long types;
    uint64_t xids_seen;
    uint64_t ecc_errors_seen;
    bool loss_told;
};

struct nvmlEventSet_st {
    struct nvmlEventSet_st *next;
    struct registration registrations[SIM_DEVICES];
};

/* Living sets, under the session's lock: any other pointer is refused. */
static struct nvmlEventSet_st *sets;

static struct nvmlEventSet_st **find_set(nvmlEventSet_t set)
{
    struct nvmlEventSet_st **link = &sets;
    while (*link && *link != set)
        link = &(*link)->next;
    return *link ? link : NULL;
}

static unsigned long long supported_types(const struct gpu *gpu)
{
    unsigned long long types = NVML_EVENT_XID_CRITICAL_ERROR;
    if (ecc_enabled(gpu->profile))
        types |= NVML_EVENT_SINGLE_BIT_ECC_ERROR | NVML_EVENT_DOUBLE_BIT_ECC_ERROR;
    return types;
}

static uint64_t xid_count(const struct gpu *gpu)
{
    return __atomic_load_n(&gpu->device->xid_count, __ATOMIC_ACQUIRE);
}

GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, supported_types(&gpu))

ENTRY nvmlEventSetCreate(nvmlEventSet_t *set)
{
    const struct sim_state *node;
    TRY(open_system(&node, set));
    struct nvmlEventSet_st *created = calloc(1, sizeof(*created));
    REQUIRE(created, NVML_ERROR_MEMORY);
    session_lock();
    created->next = sets;
    sets = created;
    session_unlock();
    *set = created;
    return NVML_SUCCESS;
}

ENTRY nvmlEventSetFree(nvmlEventSet_t set)
{
    const struct sim_state *node;
    nvmlReturn_t answer = NVML_ERROR_INVALID_ARGUMENT;

    TRY(open_system(&node, set));
    session_lock();
    struct nvmlEventSet_st **link = find_set(set);
    if (link) {
        *link = set->next;
        free(set);
        answer = NVML_SUCCESS;
    }
    session_unlock();
    return answer;
}

/* What happened before is not told: counting starts now, for types that are new to the set. */
ENTRY nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set)
{
    struct gpu gpu;
    nvmlReturn_t answer = NVML_ERROR_INVALID_ARGUMENT;

    TRY(open_gpu(&gpu, handle, set && types != 0));
    REQUIRE((types & ~supported_types(&gpu)) == 0, NVML_ERROR_NOT_SUPPORTED);
    session_lock();
    if (find_set(set)) {
        struct registration *registration = &set->registrations[gpu.index];
        if (!(registration->types & NVML_EVENT_XID_CRITICAL_ERROR))
            registration->xids_seen = xid_count(&gpu);
        if (!(registration->types & NVML_EVENT_DOUBLE_BIT_ECC_ERROR))
            registration->ecc_errors_seen = uncorrected_errors(&gpu);
        registration->types |= types;
        answer = NVML_SUCCESS;
    }
    session_unlock();
    return answer;
}

/* --- waiting ------------------------------------------------------------------------------- */

static bool take_xid(struct registration *registration, const struct gpu *gpu,
                     nvmlEventData_t *data)
{
    uint64_t count = xid_count(gpu);
    if (!(registration->types & NVML_EVENT_XID_CRITICAL_ERROR) || registration->xids_seen >= count)
        return false;
    if (count - registration->xids_seen > SIM_XIDS)
        registration->xids_seen = count - SIM_XIDS; /* older ones are forgotten */
    uint64_t position = registration->xids_seen++ % SIM_XIDS;
    data->eventType = NVML_EVENT_XID_CRITICAL_ERROR;
    data->eventData = __atomic_load_n(&gpu->device->xids[position].xid, __ATOMIC_RELAXED);
    return true;
}

static bool take_ecc_error(struct registration *registration, const struct gpu *gpu,
                           nvmlEventData_t *data)
{
    uint64_t count = uncorrected_errors(gpu);
    if (!(registration->types & NVML_EVENT_DOUBLE_BIT_ECC_ERROR) ||
        registration->ecc_errors_seen >= count)
        return false;
    registration->ecc_errors_seen = count;
    data->eventType = NVML_EVENT_DOUBLE_BIT_ECC_ERROR;
    data->eventData = 0;
    return true;
}

/* Each loss is told once, so that a client which goes on waiting does not run hot. */
static bool take_loss(struct registration *registration, const struct gpu *gpu)
{
    bool is_lost = __atomic_load_n(&gpu->device->lost, __ATOMIC_RELAXED) != 0;
    bool is_news = is_lost && !registration->loss_told && registration->types;
    registration->loss_told = is_lost;
    return is_news;
}

/* NVML_ERROR_TIMEOUT: nothing yet. An Xid that came with a loss is told before the loss. */
static nvmlReturn_t look(const struct sim_state *node, nvmlEventSet_t set, nvmlEventData_t *data)
{
    nvmlReturn_t answer = NVML_ERROR_TIMEOUT;

    REQUIRE(find_set(set), NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned index = 0; index < node->device_count; index++) {
        struct gpu gpu = gpu_of(node, index);
        struct registration *registration = &set->registrations[index];
        if (take_xid(registration, &gpu, data) || take_ecc_error(registration, &gpu, data)) {
            data->device = handle_of(index);
            data->gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_ID;
            data->computeInstanceId = NVML_VALUE_NOT_AVAILABLE_ID;
            return NVML_SUCCESS;
        }
    }
    for (unsigned index = 0; index < node->device_count; index++) {
        struct gpu gpu = gpu_of(node, index);
        if (take_loss(&set->registrations[index], &gpu))
            answer = NVML_ERROR_GPU_IS_LOST;
    }
    return answer;
}

static nvmlReturn_t wait_for_event(const struct sim_state *node, nvmlEventSet_t set,
                                   nvmlEventData_t *data, unsigned timeout_ms)
{
    uint64_t deadline_ns = sim_now() + UINT64_C(1000000) * timeout_ms;

    for (;;) {
        session_lock();
        nvmlReturn_t answer = look(node, set, data);
        session_unlock();
        uint64_t now_ns = sim_now();
        if (answer != NVML_ERROR_TIMEOUT || now_ns >= deadline_ns)
            return answer;
        uint64_t left_ns = deadline_ns - now_ns;
        struct timespec nap = {0, (long)(left_ns < POLL_NS ? left_ns : POLL_NS)};
        nanosleep(&nap, NULL);
    }
}

ENTRY nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    const struct sim_state *node;
    nvmlEventData_t found;
    TRY(open_system(&node, set && data));
    TRY(wait_for_event(node, set, &found, timeout_ms));
    *data = found;
    return NVML_SUCCESS;
}

/* The old entry's callers have no room for the instance ids. */
ENTRY nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    const struct sim_state *node;
    nvmlEventData_t found;
    TRY(open_system(&node, set && data));
    TRY(wait_for_event(node, set, &found, timeout_ms));
    memcpy(data, &found, offsetof(nvmlEventData_t, gpuInstanceId));
    return NVML_SUCCESS;
}
