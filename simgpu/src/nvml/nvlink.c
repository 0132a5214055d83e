/* NVLinks: what is at their other ends, and the fabric they make. */
#include "nvlink.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "pcie.h"

static unsigned most_links(const struct sim_profile *profile)
{
    static const unsigned by_version[] = {0, 4, 6, 12, 18, 18};
    return profile->nvlink_version < 6 ? by_version[profile->nvlink_version] : 18;
}

static unsigned promised_links(const struct sim_profile *profile)
{
    unsigned sum = 0;
    for (unsigned peer = 0; peer < SIM_DEVICES; peer++)
        sum += profile->nvlinks[peer];
    return sum;
}

bool links_to_switch(const struct sim_profile *profile)
{
    return promised_links(profile) > most_links(profile);
}

unsigned link_count(const struct sim_profile *profile)
{
    unsigned promised = promised_links(profile);
    return promised < most_links(profile) ? promised : most_links(profile);
}

int link_peer(const struct sim_profile *profile, unsigned link)
{
    unsigned sum = 0;
    for (unsigned peer = 0; peer < SIM_DEVICES && !links_to_switch(profile); peer++) {
        sum += profile->nvlinks[peer];
        if (link < sum)
            return (int)peer;
    }
    return -1;
}

unsigned link_megabytes_per_second(const struct sim_profile *profile)
{
    static const unsigned by_version[] = {0, 20000, 25781, 25000, 26562, 53125};
    return profile->nvlink_version < 6 ? by_version[profile->nvlink_version] : 53125;
}

static nvmlReturn_t open_link(struct gpu *gpu, nvmlDevice_t handle, unsigned link, bool arguments)
{
    TRY(open_gpu(gpu, handle, arguments && link < NVML_NVLINK_MAX_LINKS));
    REQUIRE(link_count(gpu->profile) > 0, NVML_ERROR_NOT_SUPPORTED);
    return link < link_count(gpu->profile) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

ENTRY nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned int link, nvmlEnableState_t *active)
{
    struct gpu gpu;
    TRY(open_link(&gpu, handle, link, active));
    *active = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkVersion(nvmlDevice_t handle, unsigned int link, unsigned int *version)
{
    struct gpu gpu;
    TRY(open_link(&gpu, handle, link, version));
    *version = gpu.profile->nvlink_version;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkCapability(nvmlDevice_t handle, unsigned int link,
                                    nvmlNvLinkCapability_t capability, unsigned int *answer)
{
    struct gpu gpu;
    TRY(open_link(&gpu, handle, link, answer && (unsigned)capability < NVML_NVLINK_CAP_COUNT));
    *answer = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned int link,
                                      nvmlNvLinkErrorCounter_t counter, unsigned long long *errors)
{
    struct gpu gpu;
    TRY(open_link(&gpu, handle, link, errors && (unsigned)counter < NVML_NVLINK_ERROR_COUNT));
    *errors = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned int link,
                                          nvmlIntNvLinkDeviceType_t *type)
{
    struct gpu gpu;
    TRY(open_link(&gpu, handle, link, type));
    *type =
        links_to_switch(gpu.profile) ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}

/* The switch chips of a baseboard: links are spread over them evenly. */
static void fill_switch_info(unsigned link, nvmlPciInfo_t *info)
{
    struct sim_profile chip = {.pci_bus = 0xc0 + link % 4, .pci_device_id = 0x22a310de};
    fill_pci_info(&chip, info);
}

static nvmlReturn_t answer_remote(nvmlDevice_t handle, unsigned int link, nvmlPciInfo_t *info,
                                  size_t bytes)
{
    struct gpu gpu;
    nvmlPciInfo_t whole;

    TRY(open_link(&gpu, handle, link, info));
    int peer = link_peer(gpu.profile, link);
    if (peer >= 0)
        fill_pci_info(&gpu.node->devices[peer].profile, &whole);
    else
        fill_switch_info(link, &whole);
    memcpy(info, &whole, bytes);
    return NVML_SUCCESS;
}

/* The old entry's callers have room for less. */
ENTRY nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t handle, unsigned int link, nvmlPciInfo_t *info)
{
    return answer_remote(handle, link, info, offsetof(nvmlPciInfo_t, busId));
}

ENTRY nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned int link,
                                          nvmlPciInfo_t *info)
{
    return answer_remote(handle, link, info, sizeof(*info));
}

/* --- the fabric: one node, so its cluster uuid is zero ------------------------------------- */

static nvmlReturn_t open_fabric(struct gpu *gpu, nvmlDevice_t handle, bool arguments)
{
    TRY(open_gpu(gpu, handle, arguments));
    bool has_fabric =
        links_to_switch(gpu->profile) && gpu->profile->architecture >= NVML_DEVICE_ARCH_HOPPER;
    return has_fabric ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

ENTRY nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, nvmlGpuFabricInfo_t *info)
{
    struct gpu gpu;
    TRY(open_fabric(&gpu, handle, info));
    memset(info, 0, sizeof(*info));
    info->state = NVML_GPU_FABRIC_STATE_COMPLETED;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfoV_t *info)
{
    struct gpu gpu;
    TRY(open_fabric(&gpu, handle, info));
    unsigned version = info->version;
    size_t bytes = sizeof(nvmlGpuFabricInfo_v3_t);
    if (version == NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        bytes = sizeof(nvmlGpuFabricInfo_v2_t);
    else
        REQUIRE_VERSION(info, nvmlGpuFabricInfo_v3_t, 3);
    memset(info, 0, bytes);
    info->version = version;
    info->state = NVML_GPU_FABRIC_STATE_COMPLETED;
    return NVML_SUCCESS;
}
