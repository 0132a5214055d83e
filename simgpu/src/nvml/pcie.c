/* Where a device is plugged in, and how wide and fast its slot is. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "pcie.h"
#include "session.h"

void fill_pci_info(const struct sim_profile *profile, nvmlPciInfo_t *info)
{
    memset(info, 0, sizeof(*info));
    info->domain = profile->pci_domain;
    info->bus = profile->pci_bus;
    info->pciDeviceId = profile->pci_device_id;
    info->pciSubSystemId = profile->pci_device_id;
    snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:00.0", info->domain & 0xffff,
             info->bus & 0xff);
    snprintf(info->busId, sizeof(info->busId), "%08X:%02X:00.0", info->domain, info->bus & 0xff);
}

/* The struct has grown: what an old entry's caller has room for ends earlier. */
static nvmlReturn_t answer_pci_info(nvmlDevice_t handle, nvmlPciInfo_t *info, size_t bytes)
{
    struct gpu gpu;
    nvmlPciInfo_t whole;
    TRY(open_gpu(&gpu, handle, info));
    fill_pci_info(gpu.profile, &whole);
    memcpy(info, &whole, bytes);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    return answer_pci_info(handle, info, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

ENTRY nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    return answer_pci_info(handle, info, offsetof(nvmlPciInfo_t, busId));
}

ENTRY nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    return answer_pci_info(handle, info, sizeof(*info));
}

ENTRY nvmlDeviceGetPciInfoExt(nvmlDevice_t handle, nvmlPciInfoExt_t *info)
{
    struct gpu gpu;
    nvmlPciInfo_t plain;
    TRY(open_gpu(&gpu, handle, info));
    REQUIRE_VERSION(info, nvmlPciInfoExt_v1_t, 1);
    fill_pci_info(gpu.profile, &plain);
    info->domain = plain.domain;
    info->bus = plain.bus;
    info->device = plain.device;
    info->pciDeviceId = plain.pciDeviceId;
    info->pciSubSystemId = plain.pciSubSystemId;
    info->baseClass = 3; /* a display controller ... */
    info->subClass = 2;  /* ... for 3D only */
    memcpy(info->busId, plain.busId, sizeof(info->busId));
    return NVML_SUCCESS;
}

/* Megabits a second of one lane, by generation. */
static unsigned lane_speed(const struct sim_profile *profile)
{
    static const unsigned speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    return profile->pcie_generation < 7 ? speeds[profile->pcie_generation] : speeds[6];
}

GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, gpu.profile->pcie_generation)
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, gpu.profile->pcie_generation)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, gpu.profile->pcie_generation)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, gpu.profile->pcie_width)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, gpu.profile->pcie_width)
GETTER(nvmlDeviceGetPcieLinkMaxSpeed, unsigned int, gpu.profile->pcie_generation)
GETTER(nvmlDeviceGetPcieSpeed, unsigned int, lane_speed(gpu.profile))
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)

/* Copies are not timed on the bus, so there is no traffic to report. */
ENTRY nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, nvmlPcieUtilCounter_t counter,
                                  unsigned int *kilobytes_per_second)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, kilobytes_per_second && (unsigned)counter < NVML_PCIE_UTIL_COUNT));
    *kilobytes_per_second = 0;
    return NVML_SUCCESS;
}
