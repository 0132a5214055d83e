/*
 * What makes a launch impossible.
 */
#include "launch.h"

enum {
    GRID_X_MOST = 0x7fffffff,
    GRID_YZ_MOST = 65535,
    BLOCK_XY_MOST = 1024,
    BLOCK_Z_MOST = 64,
    BLOCK_MOST = 1024,
    CLUSTER_PORTABLE = 8,
    CLUSTER_MOST = 16,
};

CUresult launch_check(const struct function *function, const struct shape *shape)
{
    const unsigned *grid = shape->grid;
    const unsigned *block = shape->block;
    REQUIRE(grid[0] - 1 < GRID_X_MOST && grid[1] - 1 < GRID_YZ_MOST && grid[2] - 1 < GRID_YZ_MOST);
    REQUIRE(block[0] - 1 < BLOCK_XY_MOST && block[1] - 1 < BLOCK_XY_MOST &&
            block[2] - 1 < BLOCK_Z_MOST);
    const unsigned threads = block[0] * block[1] * block[2];
    REQUIRE(threads <= BLOCK_MOST);
    if (UNLIKELY(threads > function->max_threads))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    REQUIRE((uint64_t)shape->shared_bytes + function->code->shared_bytes <=
            function->max_shared_bytes);
    return CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must run at the same time. */
static CUresult check_cooperative(const struct function *function, const struct shape *shape)
{
    const unsigned threads = shape->block[0] * shape->block[1] * shape->block[2];
    const uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    const uint64_t room = (uint64_t)occupancy_blocks(function, threads, shape->shared_bytes) *
                          function->context->sm_count;
    return blocks <= room ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static CUresult check_cluster(const struct function *function, const struct shape *shape,
                              const unsigned cluster[3])
{
    if (cluster[0] == 0 && cluster[1] == 0 && cluster[2] == 0)
        return CUDA_SUCCESS;
    for (int axis = 0; axis < 3; axis++)
        if (cluster[axis] == 0 || shape->grid[axis] % cluster[axis] != 0)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    const unsigned blocks = cluster[0] * cluster[1] * cluster[2];
    const unsigned most = function->settings.non_portable_cluster ? CLUSTER_MOST : CLUSTER_PORTABLE;
    if (blocks > most || (blocks > 1 && function->context->device->profile->compute_major < 9))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return CUDA_SUCCESS;
}

CUresult launch_check_attributes(const struct function *function, const struct shape *shape,
                                 const CUlaunchAttribute *attributes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const CUlaunchAttribute *attribute = &attributes[i];
        switch (attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            REQUIRE((unsigned)attribute->value.cooperative <= 1);
            if (attribute->value.cooperative != 0)
                TRY(check_cooperative(function, shape));
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
            const unsigned cluster[3] = {attribute->value.clusterDim.x,
                                         attribute->value.clusterDim.y,
                                         attribute->value.clusterDim.z};
            TRY(check_cluster(function, shape, cluster));
            break;
        }
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        case CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE:
        case CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE:
            break;
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Errors after which a context only answers that error. */
static bool stays(CUresult error)
{
    switch (error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

CUresult launch_fault(struct context *context)
{
    const CUresult error = (CUresult)sim_fault(context->device->index, SIM_CALL_LAUNCH);
    if (LIKELY(error == CUDA_SUCCESS))
        return CUDA_SUCCESS;
    return stays(error) ? context_fail(context, error) : error;
}
