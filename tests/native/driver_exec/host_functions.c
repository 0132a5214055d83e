/* Functions of the program, and memory values, in the order of streams. */
#include <pthread.h>

#include "bench.h"

static int calls[64];
static int call_count;

static void note(void *data)
{
    calls[__atomic_fetch_add(&call_count, 1, __ATOMIC_ACQ_REL)] = (int)(intptr_t)data;
}

static int counted(void)
{
    return __atomic_load_n(&call_count, __ATOMIC_ACQUIRE);
}

CASE(functions_run_in_order_and_after_the_gpu)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    spin(stream, 1000);
    OK(cuLaunchHostFunc(stream, note, (void *)1));
    OK(cuLaunchHostFunc_v2(stream, note, (void *)2, CU_HOST_TASK_SPINWAIT));
    spin(stream, 1000);
    OK(cuLaunchHostFunc(stream, note, (void *)3));
    pass_us(999);
    rest();
    CHECK_EQUAL(counted(), 0);
    pass_us(1);
    AWAIT(counted() == 2);
    CHECK(!is_done(stream));
    AWAIT((pass_us(100), counted() == 3));
    CHECK(calls[0] == 1 && calls[1] == 2 && calls[2] == 3);
    FLOW(cuStreamSynchronize(stream));
}

static void hold(void *data)
{
    pthread_mutex_lock(data);
    pthread_mutex_unlock(data);
}

CASE(a_slow_function_holds_up_its_own_stream_only)
{
    static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    CUdeviceptr flag = 0;
    new_context();
    const CUstream slow = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent behind = new_event();
    OK(cuMemAlloc_v2(&flag, 4));
    FLOW(cuMemsetD32_v2(flag, 0, 1));
    pthread_mutex_lock(&gate);
    OK(cuLaunchHostFunc(slow, hold, &gate));
    spin(slow, 100);
    OK(cuEventRecord(behind, slow));
    OK(cuStreamWaitValue32_v2(other, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    spin(other, 100);
    OK(cuMemcpyHtoDAsync_v2(flag, &(unsigned){1}, 4, NULL));
    AWAIT((pass_us(100), is_done(other)));
    CHECK(!is_done(slow));
    CHECK(!has_happened(behind));
    pthread_mutex_unlock(&gate);
    AWAIT((pass_us(100), has_happened(behind)));
}

static void call_driver(void *data)
{
    size_t free = 0;
    size_t total = 0;
    *(CUresult *)data = cuMemGetInfo_v2(&free, &total);
}

CASE(functions_may_not_call_the_driver)
{
    CUresult heard = CUDA_SUCCESS;
    new_context();
    OK(cuLaunchHostFunc(NULL, call_driver, &heard));
    FLOW(cuCtxSynchronize());
    CHECK_EQUAL(heard, CUDA_ERROR_NOT_PERMITTED);
}

static CUstream called_for;
static CUresult called_with = CUDA_ERROR_UNKNOWN;

static void callback(CUstream stream, CUresult status, void *data)
{
    called_for = stream;
    called_with = status;
    note(data);
}

CASE(callbacks_hear_of_their_stream)
{
    new_context();
    const CUstream stream = new_stream(0);
    OK(cuStreamAddCallback(stream, callback, NULL, 0));
    FLOW(cuStreamSynchronize(stream));
    CHECK_EQUAL(counted(), 1);
    CHECK(called_for == stream);
    CHECK_EQUAL(called_with, CUDA_SUCCESS);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, callback, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, NULL, NULL));
}

CASE(copies_wait_for_functions_before_them)
{
    static unsigned char source[16];
    static unsigned char target[16];
    static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    CUdeviceptr memory = 0;
    new_context();
    const CUstream stream = new_stream(0);
    OK(cuMemAlloc_v2(&memory, sizeof source));
    pthread_mutex_lock(&gate);
    OK(cuLaunchHostFunc(stream, hold, &gate));
    OK(cuMemcpyHtoDAsync_v2(memory, source, sizeof source, stream));
    memset(source, 7, sizeof source); /* still in time: the copy comes after the function */
    OK(cuMemcpyDtoHAsync_v2(target, memory, sizeof target, stream));
    pthread_mutex_unlock(&gate);
    AWAIT((pass_us(100), is_done(stream)));
    CHECK(target[0] == 7 && target[15] == 7);
}

CASE(the_legacy_stream_waits_for_functions_too)
{
    static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    new_context();
    const CUstream one = new_stream(CU_STREAM_DEFAULT);
    const CUstream two = new_stream(CU_STREAM_DEFAULT);
    const CUevent event = new_event();
    pthread_mutex_lock(&gate);
    OK(cuLaunchHostFunc(one, hold, &gate));
    OK(cuLaunchHostFunc(two, note, NULL));
    spin(NULL, 10);
    spin(two, 10);
    OK(cuEventRecord(event, two));
    pass_us(1000);
    rest();
    CHECK(!is_done(NULL));
    CHECK(!has_happened(event));
    pthread_mutex_unlock(&gate);
    AWAIT((pass_us(100), has_happened(event)));
    FLOW(cuCtxSynchronize());
}

CASE(values_are_written_in_order)
{
    CUdeviceptr memory = 0;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2(&memory, 16));
    FLOW(cuMemsetD8_v2(memory, 0, 16));
    const volatile uint32_t *value = (const volatile uint32_t *)(uintptr_t)memory;
    spin(stream, 1000);
    OK(cuStreamWriteValue32_v2(stream, memory, 41, 0));
    OK(cuStreamWriteValue64_v2(stream, memory + 8, 42, CU_STREAM_WRITE_VALUE_DEFAULT));
    pass_us(999);
    rest();
    CHECK_EQUAL(value[0], 0);
    pass_us(1);
    AWAIT(value[2] == 42);
    CHECK_EQUAL(value[0], 41);
    OK(cuStreamWriteValue32(stream, memory, 43, 0)); /* an idle stream writes at once */
    CHECK_EQUAL(value[0], 43);
}

CASE(waits_for_values_compare_as_asked)
{
    static const struct {
        unsigned flags;
        uint32_t wanted;
        uint32_t not_yet;
        uint32_t enough;
    } waits[] = {
        {CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
        {CU_STREAM_WAIT_VALUE_GEQ, 2, 0xfffffff0, 3}, /* later in the circle */
        {CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
        {CU_STREAM_WAIT_VALUE_AND, 6, 1, 2},
        {CU_STREAM_WAIT_VALUE_NOR, 0x0fffffff, 0xf0000000, 0x70000000},
    };
    CUdeviceptr memory = 0;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2(&memory, 4));
    uint32_t *value = (uint32_t *)(uintptr_t)memory;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        __atomic_store_n(value, waits[i].not_yet, __ATOMIC_RELEASE);
        OK(cuStreamWaitValue32_v2(stream, memory, waits[i].wanted, waits[i].flags));
        rest();
        CHECK(!is_done(stream));
        __atomic_store_n(value, waits[i].enough, __ATOMIC_RELEASE);
        AWAIT(is_done(stream));
    }
}

CASE(batches_of_memory_operations)
{
    CUdeviceptr memory = 0;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2(&memory, 16));
    FLOW(cuMemsetD8_v2(memory, 0, 16));
    CUstreamBatchMemOpParams operations[] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                        .address = memory,
                        .value = 3}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                       .address = memory,
                       .value = 3,
                       .flags = CU_STREAM_WAIT_VALUE_EQ}},
        {.atomicReduction = {.operation = CU_STREAM_MEM_OP_ATOMIC_REDUCTION,
                             .reductionOp = CU_STREAM_ATOMIC_REDUCTION_OP_ADD,
                             .dataType = CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64,
                             .address = memory + 8,
                             .value = 9}},
        {.operation = CU_STREAM_MEM_OP_BARRIER},
    };
    OK(cuStreamBatchMemOp_v2(stream, 4, operations, 0));
    FLOW(cuStreamSynchronize(stream));
    CHECK_EQUAL(((uint64_t *)(uintptr_t)memory)[1], 9);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(stream, 256, operations, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(stream, 1, operations, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(stream, memory + 1, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64_v2(stream, 4096, 0, 0));
}

CASE(a_context_ends_while_its_streams_wait)
{
    CUdeviceptr memory = 0;
    const CUcontext context = new_context();
    const CUstream stream = new_stream(0);
    OK(cuMemAlloc_v2(&memory, 4));
    FLOW(cuMemsetD32_v2(memory, 0, 1));
    OK(cuStreamWaitValue32_v2(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < 1000; i++)
        spin(stream, 10);
    OK(cuLaunchHostFunc(stream, note, NULL));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQUAL(counted(), 0);
}

static void use_in_child(void *nothing)
{
    (void)nothing;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    new_context();
    OK(cuLaunchHostFunc(NULL, note, NULL));
    FLOW(cuCtxSynchronize());
    CHECK_EQUAL(counted(), 2);
}

CASE(a_forked_child_starts_anew)
{
    new_context();
    OK(cuLaunchHostFunc(NULL, note, NULL));
    FLOW(cuCtxSynchronize());
    in_child(use_in_child, NULL);
    CHECK_EQUAL(counted(), 1);
}
