/* ECC memory: its mode and its errors. What is injected counts as uncorrected, in device memory. */
#include "ecc.h"

#include <string.h>

#include "traits.h"

uint64_t uncorrected_errors(const struct gpu *gpu)
{
    return __atomic_load_n(&gpu->device->ecc_errors, __ATOMIC_RELAXED);
}

static nvmlReturn_t open_counter(struct gpu *gpu, nvmlDevice_t handle, nvmlMemoryErrorType_t type,
                                 nvmlEccCounterType_t counter, bool arguments)
{
    TRY(open_gpu(gpu, handle,
                 arguments && (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT &&
                     (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT));
    return ecc_enabled(gpu->profile) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

ENTRY nvmlDeviceGetEccMode(nvmlDevice_t handle, nvmlEnableState_t *current,
                           nvmlEnableState_t *pending)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, current && pending));
    REQUIRE(supports_ecc(gpu.profile), NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = ecc_enabled(gpu.profile) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetDefaultEccMode(nvmlDevice_t handle, nvmlEnableState_t *mode)
{
    nvmlEnableState_t pending;
    return nvmlDeviceGetEccMode(handle, mode, &pending);
}

ENTRY nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, nvmlMemoryErrorType_t type,
                                  nvmlEccCounterType_t counter, unsigned long long *errors)
{
    struct gpu gpu;
    TRY(open_counter(&gpu, handle, type, counter, errors));
    *errors = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? uncorrected_errors(&gpu) : 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetDetailedEccErrors(nvmlDevice_t handle, nvmlMemoryErrorType_t type,
                                     nvmlEccCounterType_t counter, nvmlEccErrorCounts_t *counts)
{
    struct gpu gpu;
    TRY(open_counter(&gpu, handle, type, counter, counts));
    memset(counts, 0, sizeof(*counts));
    if (type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        counts->deviceMemory = uncorrected_errors(&gpu);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, nvmlMemoryErrorType_t type,
                                      nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
                                      unsigned long long *errors)
{
    struct gpu gpu;
    TRY(open_counter(&gpu, handle, type, counter,
                     errors && (unsigned)location < NVML_MEMORY_LOCATION_COUNT));
    bool is_counted =
        type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && location == NVML_MEMORY_LOCATION_DRAM;
    *errors = is_counted ? uncorrected_errors(&gpu) : 0;
    return NVML_SUCCESS;
}

/* --- repair: pages are retired up to Turing, rows remapped from Ampere on; none were ------- */

static nvmlReturn_t open_repair(struct gpu *gpu, nvmlDevice_t handle, bool arguments, bool rows)
{
    TRY(open_gpu(gpu, handle, arguments));
    bool has_rows = gpu->profile->architecture >= NVML_DEVICE_ARCH_AMPERE;
    return ecc_enabled(gpu->profile) && has_rows == rows ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

ENTRY nvmlDeviceGetRetiredPages(nvmlDevice_t handle, nvmlPageRetirementCause_t cause,
                                unsigned int *count, unsigned long long *addresses)
{
    struct gpu gpu;
    (void)addresses;
    TRY(open_repair(&gpu, handle, count && (unsigned)cause < NVML_PAGE_RETIREMENT_CAUSE_COUNT,
                    false));
    *count = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetRetiredPages_v2(nvmlDevice_t handle, nvmlPageRetirementCause_t cause,
                                   unsigned int *count, unsigned long long *addresses,
                                   unsigned long long *timestamps)
{
    (void)timestamps;
    return nvmlDeviceGetRetiredPages(handle, cause, count, addresses);
}

ENTRY nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t handle, nvmlEnableState_t *pending)
{
    struct gpu gpu;
    TRY(open_repair(&gpu, handle, pending, false));
    *pending = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned int *corrected,
                                unsigned int *uncorrected, unsigned int *pending,
                                unsigned int *failed)
{
    struct gpu gpu;
    TRY(open_repair(&gpu, handle, corrected && uncorrected && pending && failed, true));
    *corrected = *uncorrected = *pending = *failed = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle,
                                        nvmlRowRemapperHistogramValues_t *values)
{
    struct gpu gpu;
    TRY(open_repair(&gpu, handle, values, true));
    memset(values, 0, sizeof(*values));
    values->max = 640; /* banks, all of them with all their spare rows */
    return NVML_SUCCESS;
}
