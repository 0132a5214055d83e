/* A context's limits, flags and preferences: kept, checked, and answered back. */
#include "context.h"

static CUresult check_limit(const struct context *context, CUlimit limit)
{
    REQUIRE((int)limit >= 0 && limit < CU_LIMIT_MAX);
    switch ((int)limit) {
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: /* gone since Hopper */
        return context->device->profile->compute_major < 9 ? CUDA_SUCCESS
                                                           : CUDA_ERROR_UNSUPPORTED_LIMIT;
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
}

ENTRY cuCtxSetLimit(CUlimit limit, size_t value)
{
    ENTER(context);
    TRY(check_limit(context, limit));
    int most = 0;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        REQUIRE(value <= 512 << 10);
        break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        REQUIRE(value <= 128);
        break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        TRY(device_attribute(context->device, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
                             &most));
        if (value > (size_t)most)
            value = (size_t)most;
        break;
    default:
        break;
    }
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetLimit(size_t *value, CUlimit limit)
{
    ENTER(context);
    REQUIRE(value != NULL);
    TRY(check_limit(context, limit));
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetFlags(unsigned *flags)
{
    ENTER(context);
    REQUIRE(flags != NULL);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

ENTRY cuCtxSetFlags(unsigned flags)
{
    ENTER(context);
    const unsigned settable =
        CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;
    REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    context->flags = (context->flags & ~settable) | (flags & settable);
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetCacheConfig(CUfunc_cache *config)
{
    ENTER(context);
    REQUIRE(config != NULL);
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

ENTRY cuCtxSetCacheConfig(CUfunc_cache config)
{
    ENTER(context);
    REQUIRE((int)config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
    context->cache_config = config;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    ENTER(context);
    REQUIRE(config != NULL);
    *config = context->shared_config;
    return CUDA_SUCCESS;
}

/* Banks are four bytes wide on every device that is simulated: accepted, without effect. */
ENTRY cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    ENTER(context);
    REQUIRE((int)config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
            config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(context);
    if (least != NULL)
        *least = STREAM_PRIORITY_LEAST;
    if (greatest != NULL)
        *greatest = STREAM_PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}

ENTRY cuCtxResetPersistingL2Cache(void)
{
    ENTER(context);
    return context->device->profile->compute_major >= 8 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

ENTRY cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
    ENTER(context);
    REQUIRE(affinity != NULL);
    if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    affinity->type = type;
    affinity->param.smCount.val = context->sm_count;
    return CUDA_SUCCESS;
}
