/* Clocks, performance states, and why clocks are lower than they could be. */
#include <string.h>

#include "activity.h"
#include "sensors.h"

/* The video engines run at about four fifths of the SMs' clock. */
static nvmlReturn_t clock_at(const struct sim_profile *profile, nvmlClockType_t type,
                             unsigned percent, unsigned int *mhz)
{
    switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
        *mhz = sm_clock_mhz(profile, percent);
        return NVML_SUCCESS;
    case NVML_CLOCK_MEM:
        *mhz = memory_clock_mhz(profile, percent);
        return NVML_SUCCESS;
    case NVML_CLOCK_VIDEO:
        *mhz = sm_clock_mhz(profile, percent) * 4 / 5;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

ENTRY nvmlDeviceGetClockInfo(nvmlDevice_t handle, nvmlClockType_t type, unsigned int *mhz)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, mhz));
    return clock_at(gpu.profile, type, recent_percent(&gpu), mhz);
}

ENTRY nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, nvmlClockType_t type, unsigned int *mhz)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, mhz));
    return clock_at(gpu.profile, type, 100, mhz);
}
TWIN(nvmlDeviceGetMaxCustomerBoostClock, nvmlDeviceGetMaxClockInfo);

/* Application clocks belong to boards for servers; theirs are at the maximum. */
ENTRY nvmlDeviceGetApplicationsClock(nvmlDevice_t handle, nvmlClockType_t type, unsigned int *mhz)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, mhz));
    REQUIRE(!is_consumer(gpu.profile), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(type != NVML_CLOCK_VIDEO, NVML_ERROR_NOT_SUPPORTED);
    return clock_at(gpu.profile, type, 100, mhz);
}
TWIN(nvmlDeviceGetDefaultApplicationsClock, nvmlDeviceGetApplicationsClock);

ENTRY nvmlDeviceGetClock(nvmlDevice_t handle, nvmlClockType_t type, nvmlClockId_t id,
                         unsigned int *mhz)
{
    switch (id) {
    case NVML_CLOCK_ID_CURRENT:
        return nvmlDeviceGetClockInfo(handle, type, mhz);
    case NVML_CLOCK_ID_CUSTOMER_BOOST_MAX:
        return nvmlDeviceGetMaxClockInfo(handle, type, mhz);
    case NVML_CLOCK_ID_APP_CLOCK_TARGET:
    case NVML_CLOCK_ID_APP_CLOCK_DEFAULT:
        return nvmlDeviceGetApplicationsClock(handle, type, mhz);
    default:
        return nvmlDeviceGetClockInfo(handle, type, NULL); /* for the answer of a bad argument */
    }
}

/* --- clocks to choose from ----------------------------------------------------------------- */

static nvmlReturn_t answer_clocks(unsigned highest, unsigned lowest, unsigned step,
                                  unsigned int *room, unsigned int *mhz)
{
    unsigned count = (highest - lowest) / step + 1;
    bool fits = mhz && count <= *room;
    *room = count;
    REQUIRE(fits, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned number = 0; number < count; number++)
        mhz[number] = highest - number * step;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t handle, unsigned int *room, unsigned int *mhz)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, room));
    unsigned highest = gpu.profile->memory_clock_mhz;
    unsigned lowest = memory_clock_mhz(gpu.profile, 0);
    return answer_clocks(highest, lowest, highest > lowest ? highest - lowest : 1, room, mhz);
}

ENTRY nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t handle, unsigned int memory_mhz,
                                           unsigned int *room, unsigned int *mhz)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, room));
    REQUIRE(memory_mhz == gpu.profile->memory_clock_mhz ||
                memory_mhz == memory_clock_mhz(gpu.profile, 0),
            NVML_ERROR_NOT_FOUND);
    return answer_clocks(gpu.profile->sm_clock_mhz, sm_clock_mhz(gpu.profile, 0), 15, room, mhz);
}

GETTER(nvmlDeviceGetAdaptiveClockInfoStatus, unsigned int, 1)

/* --- performance states -------------------------------------------------------------------- */

LIVE_GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t,
            performance_state(gpu.profile, recent_percent(&gpu)))
TWIN(nvmlDeviceGetPowerState, nvmlDeviceGetPerformanceState);

ENTRY nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t handle, nvmlPstates_t *states,
                                              unsigned int bytes)
{
    struct gpu gpu;
    nvmlPstates_t idle;

    TRY(open_gpu(&gpu, handle, states));
    unsigned room = bytes / (unsigned)sizeof(*states);
    if (room > NVML_MAX_GPU_PERF_PSTATES)
        room = NVML_MAX_GPU_PERF_PSTATES;
    idle = performance_state(gpu.profile, 0);
    REQUIRE(room >= (idle == NVML_PSTATE_0 ? 1u : 2u), NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned number = 0; number < room; number++)
        states[number] = NVML_PSTATE_UNKNOWN;
    states[0] = NVML_PSTATE_0;
    if (idle != NVML_PSTATE_0)
        states[1] = idle;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t handle, nvmlClockType_t type,
                                       nvmlPstates_t state, unsigned int *lowest,
                                       unsigned int *highest)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, lowest && highest));
    bool is_fast = state == NVML_PSTATE_0;
    REQUIRE(is_fast || state == performance_state(gpu.profile, 0), NVML_ERROR_INVALID_ARGUMENT);
    TRY(clock_at(gpu.profile, type, 0, lowest));
    return clock_at(gpu.profile, type, is_fast ? 100 : 0, highest);
}

/* The domains are: graphics engine, frame buffer, video engine, bus. */
ENTRY nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t handle, nvmlGpuDynamicPstatesInfo_t *info)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, info));
    memset(info, 0, sizeof(*info));
    unsigned percent = recent_percent(&gpu);
    for (unsigned domain = 0; domain < 4; domain++)
        info->utilization[domain].bIsPresent = 1;
    info->utilization[0].percentage = percent;
    info->utilization[1].percentage = memory_percent(percent);
    return NVML_SUCCESS;
}

/* --- why clocks are low: idleness is the only reason here ---------------------------------- */

LIVE_GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long,
            recent_percent(&gpu) ? 0 : NVML_CLOCKS_EVENT_REASON_GPU_IDLE)
TWIN(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons);

GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0x1ff)
TWIN(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons);

ENTRY nvmlDeviceGetViolationStatus(nvmlDevice_t handle, nvmlPerfPolicyType_t policy,
                                   nvmlViolationTime_t *time)
{
    struct gpu gpu;
    bool is_known = (unsigned)policy <= NVML_PERF_POLICY_RELIABILITY ||
                    policy == NVML_PERF_POLICY_TOTAL_APP_CLOCKS ||
                    policy == NVML_PERF_POLICY_TOTAL_BASE_CLOCKS;
    TRY(open_gpu(&gpu, handle, time && is_known));
    time->referenceTime = window_timestamp(last_window(&gpu));
    time->violationTime = 0;
    return NVML_SUCCESS;
}
