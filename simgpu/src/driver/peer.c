/* Which devices reach each other's memory, and what contexts have asked for. */
#include "context.h"

static unsigned links(const struct device *device, const struct device *peer)
{
    return device->profile->nvlinks[peer->index];
}

/* Over NVLink, or over PCIe below the same processor. */
bool device_reaches(const struct device *device, const struct device *peer)
{
    if (device == peer)
        return false;
    return links(device, peer) > 0 || device->profile->numa_node == peer->profile->numa_node;
}

ENTRY cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer_ordinal)
{
    struct device *device = NULL;
    struct device *peer = NULL;
    TRY(device_get(ordinal, &device));
    TRY(device_get(peer_ordinal, &peer));
    REQUIRE(can != NULL);
    *can = device_reaches(device, peer);
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source,
                              CUdevice destination)
{
    struct device *device = NULL;
    struct device *peer = NULL;
    TRY(device_get(source, &device));
    TRY(device_get(destination, &peer));
    REQUIRE(value != NULL);
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    switch ((int)attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: /* lower is faster */
        *value = links(device, peer) > 0 ? 0 : 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = device_reaches(device, peer);
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = links(device, peer) > 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What an atomic operation can be between two places with native atomics. */
static unsigned atomic_capability(CUatomicOperation operation)
{
    const unsigned integer = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                             CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
    const bool reduces =
        operation != CU_ATOMIC_OPERATION_EXCHANGE && operation != CU_ATOMIC_OPERATION_CAS;
    return integer | (reduces ? (unsigned)CU_ATOMIC_CAPABILITY_REDUCTION : 0);
}

static CUresult atomic_capabilities(unsigned *capabilities, const CUatomicOperation *operations,
                                    unsigned count, bool native)
{
    REQUIRE(capabilities != NULL && operations != NULL && count > 0);
    for (unsigned number = 0; number < count; number++) {
        REQUIRE(operations[number] < CU_ATOMIC_OPERATION_MAX);
        capabilities[number] = native ? atomic_capability(operations[number]) : 0;
    }
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetP2PAtomicCapabilities(unsigned *capabilities, const CUatomicOperation *operations,
                                       unsigned count, CUdevice source, CUdevice destination)
{
    struct device *device = NULL;
    struct device *peer = NULL;
    TRY(device_get(source, &device));
    TRY(device_get(destination, &peer));
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    return atomic_capabilities(capabilities, operations, count, links(device, peer) > 0);
}

/* Over PCIe the host's memory has no native atomics. */
ENTRY cuDeviceGetHostAtomicCapabilities(unsigned *capabilities, const CUatomicOperation *operations,
                                        unsigned count, CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    return atomic_capabilities(capabilities, operations, count, false);
}

ENTRY cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
    ENTER(context);
    REQUIRE(flags == 0);
    struct context *peer = NULL;
    TRY(context_get(handle, &peer));
    if (peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device_reaches(context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const uint64_t bit = UINT64_C(1) << peer->device->ordinal;
    const uint64_t before = __atomic_fetch_or(&context->peers, bit, __ATOMIC_RELAXED);
    return (before & bit) != 0 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

ENTRY cuCtxDisablePeerAccess(CUcontext handle)
{
    ENTER(context);
    struct context *peer = NULL;
    TRY(context_get(handle, &peer));
    const uint64_t bit = UINT64_C(1) << peer->device->ordinal;
    const uint64_t before = __atomic_fetch_and(&context->peers, ~bit, __ATOMIC_RELAXED);
    return (before & bit) == 0 ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_SUCCESS;
}
