/* How devices reach each other and the CPUs: PCIe switches, NUMA nodes, peer access. */
#include "session.h"
#include "traits.h"

/* Two devices on one switch, in one NUMA node, or on different ones. */
static nvmlGpuTopologyLevel_t common_ancestor(const struct gpu *one, const struct gpu *other)
{
    if (one->index == other->index)
        return NVML_TOPOLOGY_INTERNAL;
    if (one->profile->pcie_switch == other->profile->pcie_switch)
        return NVML_TOPOLOGY_SINGLE;
    if (one->profile->numa_node == other->profile->numa_node)
        return NVML_TOPOLOGY_NODE;
    return NVML_TOPOLOGY_SYSTEM;
}

ENTRY nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second,
                                          nvmlGpuTopologyLevel_t *level)
{
    struct gpu pair[2];
    TRY(open_pair(pair, first, second, level));
    *level = common_ancestor(&pair[0], &pair[1]);
    return NVML_SUCCESS;
}

static bool is_level(nvmlGpuTopologyLevel_t level)
{
    return (unsigned)level <= NVML_TOPOLOGY_SYSTEM && (unsigned)level % 10 == 0;
}

/* A count of zero asks how many there are; any other is how many fit. */
ENTRY nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t handle, nvmlGpuTopologyLevel_t level,
                                       unsigned int *room, nvmlDevice_t *handles)
{
    struct gpu gpu;
    unsigned count = 0;

    TRY(open_gpu(&gpu, handle, room && (handles || *room == 0) && is_level(level)));
    for (unsigned index = 0; index < gpu.node->device_count; index++) {
        struct gpu other = gpu_of(gpu.node, index);
        if (index == gpu.index || common_ancestor(&gpu, &other) != level)
            continue;
        if (count < *room)
            handles[count] = handle_of(index);
        count++;
    }
    if (*room == 0 || count < *room)
        *room = count;
    return NVML_SUCCESS;
}

/* --- peer access --------------------------------------------------------------------------- */

/* Over NVLink between linked devices; over PCIe between boards of one kind, but not for games. */
static nvmlGpuP2PStatus_t peer_status(const struct gpu *one, const struct gpu *other,
                                      nvmlGpuP2PCapsIndex_t capability)
{
    bool linked = one->profile->nvlinks[other->index] > 0;
    if (capability == NVML_P2P_CAPS_INDEX_NVLINK || capability == NVML_P2P_CAPS_INDEX_ATOMICS)
        return linked ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    if (one->index == other->index || linked)
        return NVML_P2P_STATUS_OK;
    if (one->profile->pci_device_id != other->profile->pci_device_id)
        return NVML_P2P_STATUS_GPU_NOT_SUPPORTED;
    return is_consumer(one->profile) ? NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
}

ENTRY nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second,
                             nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status)
{
    struct gpu pair[2];
    TRY(open_pair(pair, first, second,
                  status && (unsigned)capability < NVML_P2P_CAPS_INDEX_UNKNOWN));
    *status = peer_status(&pair[0], &pair[1], capability);
    return NVML_SUCCESS;
}
