/*
 * What fits on an SM: the blocks that it can hold at a time, and the block size that fills it.
 */
#include "launch.h"

enum {
    WARP = 32,
    REGISTER_UNIT = 256, /* registers are given to a warp in steps of this */
    SHARED_UNIT = 128,
};

static unsigned rounded_up(size_t value, unsigned unit)
{
    return (unsigned)((value + unit - 1) / unit * unit);
}

unsigned occupancy_blocks(const struct function *function, unsigned threads, size_t dynamic_bytes)
{
    const struct sm_limits *sm = &function->sm;
    const unsigned warps = (threads + WARP - 1) / WARP;
    if (warps == 0 || threads > function->max_threads)
        return 0;
    unsigned blocks = sm->blocks;
    const unsigned by_threads = sm->threads / (warps * WARP);
    if (by_threads < blocks)
        blocks = by_threads;
    const unsigned registers = function->code->registers != 0 ? function->code->registers : WARP;
    const unsigned by_registers =
        sm->registers / (rounded_up((size_t)registers * WARP, REGISTER_UNIT) * warps);
    if (by_registers < blocks)
        blocks = by_registers;
    const unsigned shared = rounded_up(
        function->code->shared_bytes + dynamic_bytes + sm->reserved_shared_bytes, SHARED_UNIT);
    if (shared > 0 && sm->shared_bytes / shared < blocks)
        blocks = sm->shared_bytes / shared;
    return blocks;
}

static CUresult get(CUfunction handle, struct function **function)
{
    ENTER(context);
    return function_get(context, handle, function);
}

ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *block_count, CUfunction handle,
                                                           int block_size, size_t dynamic_bytes,
                                                           unsigned flags)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(block_count != NULL && block_size > 0);
    REQUIRE((flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) == 0);
    *block_count = (int)occupancy_blocks(function, (unsigned)block_size, dynamic_bytes);
    return CUDA_SUCCESS;
}

ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int *block_count, CUfunction handle,
                                                  int block_size, size_t dynamic_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        block_count, handle, block_size, dynamic_bytes, CU_OCCUPANCY_DEFAULT);
}

ENTRY cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction handle,
                                                CUoccupancyB2DSize dynamic_bytes_of,
                                                size_t dynamic_bytes, int limit, unsigned flags)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(grid_size != NULL && block_size != NULL && limit >= 0);
    REQUIRE((flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) == 0);
    unsigned most = function->max_threads;
    if (limit != 0 && (unsigned)limit < most)
        most = (unsigned)limit;
    unsigned best_threads = 0;
    unsigned best_blocks = 0;
    /* The largest block of those that fill an SM best. */
    for (unsigned threads = most; threads > 0;) {
        const size_t dynamic =
            dynamic_bytes_of != NULL ? dynamic_bytes_of((int)threads) : dynamic_bytes;
        const unsigned blocks = occupancy_blocks(function, threads, dynamic);
        if (blocks * threads > best_blocks * best_threads) {
            best_threads = threads;
            best_blocks = blocks;
        }
        threads = threads % WARP != 0 ? threads - threads % WARP : threads - WARP;
    }
    *block_size = (int)best_threads;
    *grid_size = (int)(best_blocks * function->context->sm_count);
    return CUDA_SUCCESS;
}

ENTRY cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction handle,
                                       CUoccupancyB2DSize dynamic_bytes_of, size_t dynamic_bytes,
                                       int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, handle,
                                                     dynamic_bytes_of, dynamic_bytes, limit,
                                                     CU_OCCUPANCY_DEFAULT);
}

ENTRY cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int block_count,
                                              int block_size)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(bytes != NULL && block_count > 0 && block_size > 0);
    const struct sm_limits *sm = &function->sm;
    size_t each = sm->shared_bytes / (unsigned)block_count / SHARED_UNIT * SHARED_UNIT;
    const size_t taken = function->code->shared_bytes + sm->reserved_shared_bytes;
    each = each > taken ? each - taken : 0;
    const size_t allowed = function->max_shared_bytes - function->code->shared_bytes;
    *bytes = each < allowed ? each : allowed;
    return CUDA_SUCCESS;
}

/* --- clusters ------------------------------------------------------------------------------ */

enum { PORTABLE_CLUSTER = 8, LARGEST_CLUSTER = 16 };

static unsigned cluster_of(const CUlaunchConfig *config, const struct function *function)
{
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return attribute->value.clusterDim.x * attribute->value.clusterDim.y *
                   attribute->value.clusterDim.z;
    }
    const unsigned *required = function->code->cluster;
    return required[0] != 0 ? required[0] * required[1] * required[2] : 1;
}

static CUresult get_cluster(CUfunction handle, const CUlaunchConfig *config,
                            struct function **function, unsigned *blocks)
{
    TRY(get(handle, function));
    REQUIRE(config != NULL);
    if ((*function)->context->device->profile->compute_major < 9)
        return CUDA_ERROR_NOT_SUPPORTED;
    const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    *blocks = occupancy_blocks(*function, threads, config->sharedMemBytes);
    return *blocks > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuOccupancyMaxPotentialClusterSize(int *cluster_size, CUfunction handle,
                                         const CUlaunchConfig *config)
{
    struct function *function = NULL;
    unsigned blocks = 0;
    TRY(get_cluster(handle, config, &function, &blocks));
    REQUIRE(cluster_size != NULL);
    *cluster_size = function->settings.non_portable_cluster ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
    return CUDA_SUCCESS;
}

ENTRY cuOccupancyMaxActiveClusters(int *cluster_count, CUfunction handle,
                                   const CUlaunchConfig *config)
{
    struct function *function = NULL;
    unsigned blocks = 0;
    TRY(get_cluster(handle, config, &function, &blocks));
    REQUIRE(cluster_count != NULL);
    const unsigned cluster = cluster_of(config, function);
    if (cluster == 0 || cluster > LARGEST_CLUSTER)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    *cluster_count = (int)(function->context->sm_count * blocks / cluster);
    return CUDA_SUCCESS;
}
