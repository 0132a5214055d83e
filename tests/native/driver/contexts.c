/* Contexts: the stack of a thread, primary and green ones, limits, and what ends with them. */
#include "check.h"

#include <pthread.h>

static CUcontext current(void)
{
    CUcontext context = NULL;
    OK(cuCtxGetCurrent(&context));
    return context;
}

CASE(the_stack_of_a_thread)
{
    OK(cuInit(0));
    CHECK(current() == NULL);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(NULL));
    CUcontext one = NULL;
    CUcontext other = NULL;
    CUcontext popped = NULL;
    OK(cuCtxCreate_v2(&one, CU_CTX_SCHED_SPIN, 0));
    OK(cuCtxCreate_v2(&other, 0, 1));
    CHECK(current() == other);
    CUdevice device = -1;
    OK(cuCtxGetDevice(&device));
    CHECK_EQUAL(device, 1);
    OK(cuCtxGetDevice_v2(&device, one));
    CHECK_EQUAL(device, 0);
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == other && current() == one);
    OK(cuCtxPushCurrent_v2(other));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuCtxSetCurrent(one)); /* in the place of the top */
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == one && current() == other);
    OK(cuCtxSetCurrent(NULL));
    CHECK(current() == one);
    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxSetCurrent(NULL));
    CHECK(current() == NULL);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)&one));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(NULL));
    for (int i = 0; i < 100; i++)
        OK(cuCtxPushCurrent_v2(i % 2 ? one : other));
    for (int i = 99; i >= 0; i--) {
        OK(cuCtxPopCurrent_v2(&popped));
        CHECK(popped == (i % 2 ? one : other));
    }
}

static void *use_a_destroyed_context(void *argument)
{
    pthread_barrier_t *barrier = ((void **)argument)[0];
    CUdeviceptr address = 0;
    OK(cuCtxSetCurrent(((void **)argument)[1]));
    OK(cuMemAlloc_v2(&address, 1));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&address, 1));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    OK(cuCtxSetCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
    return NULL;
}

CASE(other_threads_notice_a_destroyed_context)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    CUcontext context = fresh_context();
    void *arguments[] = {&barrier, context};
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK(pthread_create(&thread, NULL, use_a_destroyed_context, arguments) == 0);
    pthread_barrier_wait(&barrier);
    OK(cuCtxDestroy_v2(context));
    CHECK(current() == NULL);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
    CUcontext next = NULL;
    OK(cuCtxCreate_v2(&next, 0, 0));
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
}

CASE(contexts_are_charged)
{
    CUcontext first = fresh_context();
    size_t total = 0;
    OK(cuDeviceTotalMem_v2(&total, 0));
    const size_t each = total - free_bytes();
    CHECK(each > 64 * MIB);
    CUcontext more[8];
    for (size_t i = 0; i < 8; i++) {
        OK(cuCtxCreate_v2(&more[i], 0, 0));
        CHECK_EQUAL(total - free_bytes(), (i + 2) * each);
    }
    for (int i = 0; i < 8; i++)
        OK(cuCtxDestroy_v2(more[i]));
    OK(cuCtxSetCurrent(first));
    CHECK_EQUAL(total - free_bytes(), each);
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, free_bytes() - each / 2));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&more[0], 0, 0));
    CHECK(current() == first);
}

CASE(flags_and_versions)
{
    OK(cuInit(0));
    CUcontext context = NULL;
    unsigned value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(NULL, 0, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 99));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, -1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&context, 0x1000, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0));
    OK(cuCtxCreate_v4(&context, NULL, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, 0));
    OK(cuCtxGetFlags(&value));
    CHECK_EQUAL(value, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
    OK(cuCtxGetApiVersion(NULL, &value));
    CHECK_EQUAL(value, 3020);
    unsigned long long id = 0;
    unsigned long long next_id = 0;
    OK(cuCtxGetId(context, &id));
    CUcontext next = NULL;
    OK(cuCtxCreate(&next, 0, 0));
    OK(cuCtxGetId(NULL, &next_id));
    CHECK(id != next_id);
    OK(cuCtxGetApiVersion(next, &value));
    CHECK_EQUAL(value, 3010);
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
    FAILS(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, cuCtxCreate_v3(&next, &affinity, 1, 0, 0));
}

CASE(limits_are_kept)
{
    fresh_context();
    size_t value = 0;
    OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    CHECK_EQUAL(value, 1024);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * MIB));
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK_EQUAL(value, 64 * MIB);
    FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, (CUlimit)99));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    OK(cuCtxGetCacheConfig(&cache));
    CHECK_EQUAL(cache, CU_FUNC_CACHE_PREFER_L1);
    int least = 1;
    int greatest = 1;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
}

CASE(the_primary_context_is_counted)
{
    OK(cuInit(0));
    CUcontext one = NULL;
    CUcontext other = NULL;
    unsigned flags = 0;
    int active = 1;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
    OK(cuDevicePrimaryCtxRetain(&one, 0));
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    CHECK(one == other && current() == NULL);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1 && flags == CU_CTX_SCHED_YIELD);
    OK(cuCtxSetCurrent(one));
    const size_t before = free_bytes();
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 10 * MIB));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(one));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemFree_v2(address));
    OK(cuMemAlloc_v2(&address, 10 * MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&address, 1));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(one));
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    CHECK(other == one);
    CHECK_EQUAL(free_bytes(), before); /* current again, with nothing in it */
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
}

CASE(resetting_the_primary_context_frees_everything)
{
    OK(cuInit(0));
    CUcontext context = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    const size_t before = free_bytes();
    CUdeviceptr address = 0;
    for (int i = 0; i < 50; i++)
        OK(cuMemAlloc_v2(&address, (size_t)(1 + i) * 100 * KIB));
    OK(cuMemAllocAsync(&address, 50 * MIB, NULL));
    OK(cuMemAllocManaged(&address, 50 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuDevicePrimaryCtxReset_v2(0));
    unsigned flags = 0;
    int active = 1;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    CUcontext watcher = NULL;
    OK(cuCtxCreate_v2(&watcher, 0, 0));
    CHECK_EQUAL(free_bytes(), before); /* its own charge in the place of the primary one's */
    OK(cuCtxDestroy_v2(watcher));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuMemAlloc_v2(&address, 1));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

CASE(green_contexts_are_parts_of_a_device)
{
    OK(cuInit(0));
    CUdevResource all;
    CUdevResource part[3];
    CUdevResource rest;
    unsigned count = 3;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(part, &count, &all, &rest, 0, 16));
    CHECK_EQUAL(count, 3);
    CHECK(part[0].sm.smCount >= 16);
    CHECK_EQUAL(rest.sm.smCount + 3 * part[0].sm.smCount, all.sm.smCount);
    CUdevResourceDesc description = NULL;
    OK(cuDevResourceGenerateDesc(&description, part, 1));
    CUgreenCtx green = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuGreenCtxCreate(&green, description, 1, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CUdevResource own;
    OK(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQUAL(own.sm.smCount, part[0].sm.smCount);
    CUcontext context = NULL;
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 1000));
    OK(cuMemsetD8_v2(address, 1, 1000));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
    /* Its memory is the primary context's. */
    CUcontext primary = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuGreenCtxDestroy(green));
    OK(cuCtxSetCurrent(primary));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, address, 1));
    CHECK_EQUAL(byte, 1);
    OK(cuMemFree_v2(address));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    int active = 1;
    unsigned flags = 0;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
}

static void *create_and_destroy(void *argument)
{
    for (int i = 0; i < 200; i++) {
        CUcontext context = NULL;
        CUdeviceptr address = 0;
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuMemAlloc_v2(&address, (size_t)(i + 1) * KIB));
        OK(cuMemsetD8_v2(address, 1, KIB));
        OK(cuCtxDestroy_v2(context));
    }
    return argument;
}

CASE(threads_create_and_destroy)
{
    pthread_t threads[4];
    fresh_context();
    const size_t before = free_bytes();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, create_and_destroy, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_EQUAL(free_bytes(), before);
}
