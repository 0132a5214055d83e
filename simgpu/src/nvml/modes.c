/* Modes of operation: all of them as they are after a reboot, and none can be changed. */
#include <string.h>

#include "session.h"
#include "traits.h"

GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GETTER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
       NVML_GPU_VIRTUALIZATION_MODE_NONE)
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
GETTER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GETTER(nvmlDeviceGetAccountingBufferSize, unsigned int, 4000)

ENTRY nvmlDeviceGetAPIRestriction(nvmlDevice_t handle, nvmlRestrictedAPI_t api,
                                  nvmlEnableState_t *restricted)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, restricted && (unsigned)api < NVML_RESTRICTED_API_COUNT));
    REQUIRE(api == NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS, NVML_ERROR_NOT_SUPPORTED);
    *restricted = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* --- MIG: where the chip has it, it is off ------------------------------------------------- */

ENTRY nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned int *current, unsigned int *pending)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, current && pending));
    REQUIRE(supports_mig(gpu.profile), NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned int index,
                                          nvmlDevice_t *mig)
{
    struct gpu gpu;
    (void)index;
    TRY(open_gpu(&gpu, handle, mig));
    return supports_mig(gpu.profile) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
}

/* --- accounting of ended processes: off ---------------------------------------------------- */

ENTRY nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned int pid,
                                   nvmlAccountingStats_t *stats)
{
    struct gpu gpu;
    (void)pid;
    TRY(open_gpu(&gpu, handle, stats));
    return NVML_ERROR_NOT_FOUND;
}

ENTRY nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned int *count, unsigned int *pids)
{
    struct gpu gpu;
    (void)pids;
    TRY(open_gpu(&gpu, handle, count));
    *count = 0;
    return NVML_SUCCESS;
}

/* --- confidential computing: off, so all memory is unprotected ----------------------------- */

ENTRY nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t handle, nvmlConfComputeMemSizeInfo_t *info)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, info));
    REQUIRE(gpu.profile->architecture >= NVML_DEVICE_ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    info->protectedMemSizeKib = 0;
    info->unprotectedMemSizeKib = gpu.profile->memory_bytes >> 10;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, memory));
    REQUIRE(gpu.profile->architecture >= NVML_DEVICE_ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    memset(memory, 0, sizeof(*memory));
    return NVML_SUCCESS;
}

ENTRY nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, support));
    support->isSupportedDevice = 0;
    return NVML_SUCCESS;
}
