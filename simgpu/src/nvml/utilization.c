/* Utilisation of devices and of their processes, as NVML asks for it. */
#include <string.h>

#include "activity.h"
#include "process.h"
#include "sensors.h"
#include "session.h"

ENTRY nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *utilization)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, utilization));
    utilization->gpu = recent_percent(&gpu);
    utilization->memory = memory_percent(utilization->gpu);
    return NVML_SUCCESS;
}

/* --- by process ---------------------------------------------------------------------------- */

struct share {
    unsigned pid;
    unsigned percent;
};

/*
 * The mean over the windows after `timestamp`, from the process's first work on. How drivers show
 * idle processes differs: not at all, or with zero; the node's hide_idle chooses.
 */
static unsigned list_shares(const struct gpu *gpu, unsigned long long timestamp,
                            struct share shares[SIM_PROCESSES], unsigned long long *newest)
{
    struct process found[SIM_PROCESSES];
    uint64_t first = first_window_after(gpu, timestamp);
    uint64_t last = last_window(gpu);
    unsigned count = 0;

    *newest = window_timestamp(last);
    if (first > last)
        return 0;
    unsigned process_count = list_processes(gpu, found);
    for (unsigned number = 0; number < process_count; number++) {
        const struct sim_usage *usage =
            &gpu->node->processes[found[number].slot].usages[gpu->index];
        uint64_t began = first_busy_window(usage);
        uint64_t from = began > first ? began : first;
        uint64_t busy_ns = busy_within(usage, first, last);
        uint64_t span_ns = from <= last ? (last - from + 1) * SIM_WINDOW_NS : SIM_WINDOW_NS;
        if (!busy_ns && __atomic_load_n(&gpu->node->hide_idle, __ATOMIC_RELAXED))
            continue;
        shares[count++] = (struct share){
            .pid = found[number].pid,
            .percent = (unsigned)((busy_ns * 100 + span_ns / 2) / span_ns),
        };
    }
    return count;
}

ENTRY nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *samples,
                                      unsigned int *room, unsigned long long last_seen)
{
    struct gpu gpu;
    struct share shares[SIM_PROCESSES];
    unsigned long long newest;

    TRY(open_live_gpu(&gpu, handle, room));
    unsigned count = list_shares(&gpu, last_seen, shares, &newest);
    bool fits = samples && count <= *room;
    *room = count;
    REQUIRE(count > 0, NVML_ERROR_NOT_FOUND);
    REQUIRE(fits, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned number = 0; number < count; number++)
        samples[number] = (nvmlProcessUtilizationSample_t){
            .pid = shares[number].pid,
            .timeStamp = newest,
            .smUtil = shares[number].percent,
            .memUtil = memory_percent(shares[number].percent),
        };
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle,
                                            nvmlProcessesUtilizationInfo_t *info)
{
    struct gpu gpu;
    struct share shares[SIM_PROCESSES];
    unsigned long long newest;

    TRY(open_live_gpu(&gpu, handle, info));
    REQUIRE_VERSION(info, nvmlProcessesUtilizationInfo_v1_t, 1);
    unsigned count = list_shares(&gpu, info->lastSeenTimeStamp, shares, &newest);
    bool fits = info->procUtilArray && count <= info->processSamplesCount;
    info->processSamplesCount = count;
    REQUIRE(count > 0, NVML_ERROR_NOT_FOUND);
    REQUIRE(fits, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned number = 0; number < count; number++)
        info->procUtilArray[number] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = newest,
            .pid = shares[number].pid,
            .smUtil = shares[number].percent,
            .memUtil = memory_percent(shares[number].percent),
        };
    return NVML_SUCCESS;
}

/* --- by time ------------------------------------------------------------------------------- */

static unsigned sample_value(const struct gpu *gpu, nvmlSamplingType_t type, uint64_t window)
{
    unsigned percent = window_percent(gpu, window);
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES:
        return power_milliwatts(gpu->profile, percent);
    case NVML_GPU_UTILIZATION_SAMPLES:
        return percent;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        return memory_percent(percent);
    case NVML_PROCESSOR_CLK_SAMPLES:
        return sm_clock_mhz(gpu->profile, percent);
    case NVML_MEMORY_CLK_SAMPLES:
        return memory_clock_mhz(gpu->profile, percent);
    default:
        return 0;
    }
}

ENTRY nvmlDeviceGetSamples(nvmlDevice_t handle, nvmlSamplingType_t type,
                           unsigned long long last_seen, nvmlValueType_t *value_type,
                           unsigned int *room, nvmlSample_t *samples)
{
    struct gpu gpu;

    TRY(open_live_gpu(&gpu, handle,
                      value_type && room && (!samples || *room) &&
                          (unsigned)type < NVML_SAMPLINGTYPE_COUNT));
    REQUIRE(type != NVML_MODULE_POWER_SAMPLES, NVML_ERROR_NOT_SUPPORTED);
    uint64_t first = first_window_after(&gpu, last_seen);
    uint64_t last = last_window(&gpu);
    REQUIRE(first <= last, NVML_ERROR_NOT_FOUND);
    unsigned count = (unsigned)(last - first + 1);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples && count > *room)
        count = *room;
    *room = count;
    for (unsigned number = 0; samples && number < count; number++) {
        samples[number].timeStamp = window_timestamp(first + number);
        samples[number].sampleValue = (nvmlValue_t){.ullVal = 0};
        samples[number].sampleValue.uiVal = sample_value(&gpu, type, first + number);
    }
    return NVML_SUCCESS;
}

/* --- engines that nobody uses -------------------------------------------------------------- */

static nvmlReturn_t answer_idle_engine(nvmlDevice_t handle, unsigned int *percent,
                                       unsigned int *period_us)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, percent && period_us));
    *percent = 0;
    *period_us = SIM_WINDOW_NS / 1000;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetEncoderUtilization(nvmlDevice_t handle, unsigned int *percent,
                                      unsigned int *period_us)
{
    return answer_idle_engine(handle, percent, period_us);
}
TWIN(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization);
TWIN(nvmlDeviceGetJpgUtilization, nvmlDeviceGetEncoderUtilization);
TWIN(nvmlDeviceGetOfaUtilization, nvmlDeviceGetEncoderUtilization);

ENTRY nvmlDeviceGetEncoderCapacity(nvmlDevice_t handle, nvmlEncoderType_t type,
                                   unsigned int *capacity)
{
    struct gpu gpu;
    (void)type;
    TRY(open_gpu(&gpu, handle, capacity));
    *capacity = 100;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetEncoderStats(nvmlDevice_t handle, unsigned int *sessions,
                                unsigned int *average_fps, unsigned int *average_latency)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, sessions && average_fps && average_latency));
    *sessions = *average_fps = *average_latency = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetEncoderSessions(nvmlDevice_t handle, unsigned int *count,
                                   nvmlEncoderSessionInfo_t *sessions)
{
    struct gpu gpu;
    (void)sessions;
    TRY(open_gpu(&gpu, handle, count));
    *count = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetFBCStats(nvmlDevice_t handle, nvmlFBCStats_t *stats)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, stats));
    memset(stats, 0, sizeof(*stats));
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetFBCSessions(nvmlDevice_t handle, unsigned int *count,
                               nvmlFBCSessionInfo_t *sessions)
{
    struct gpu gpu;
    (void)sessions;
    TRY(open_gpu(&gpu, handle, count));
    *count = 0;
    return NVML_SUCCESS;
}
