/* Streams: order within and between them, default streams, handles. */
#include "bench.h"

CASE(work_in_a_stream_runs_in_order)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent middle = new_event();
    spin(stream, 1000);
    OK(cuEventRecord(middle, stream));
    spin(stream, 1000);
    CHECK(!has_happened(middle));
    pass_us(999);
    CHECK(!has_happened(middle));
    pass_us(1);
    CHECK(has_happened(middle));
    CHECK(!is_done(stream));
    pass_us(1000);
    CHECK(is_done(stream));
    OK(cuStreamSynchronize(stream));
}

CASE(streams_overlap)
{
    new_context();
    CUstream streams[3];
    for (int i = 0; i < 3; i++) {
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
        spin(streams[i], 5000);
    }
    pass_us(4999);
    for (int i = 0; i < 3; i++)
        CHECK(!is_done(streams[i]));
    pass_us(1);
    for (int i = 0; i < 3; i++)
        CHECK(is_done(streams[i]));
    OK(cuCtxSynchronize());
}

CASE(legacy_stream_waits_for_blocking_streams)
{
    new_context();
    const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    const CUstream free_running = new_stream(CU_STREAM_NON_BLOCKING);
    spin(blocking, 1000);
    spin(free_running, 9000);
    spin(NULL, 1000);
    pass_us(1000);
    CHECK(is_done(blocking));
    CHECK(!is_done(NULL));
    pass_us(1000);
    CHECK(is_done(NULL));
    CHECK(is_done(CU_STREAM_LEGACY));
    CHECK(!is_done(free_running));
}

CASE(blocking_streams_wait_for_the_legacy_stream)
{
    new_context();
    const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    const CUstream free_running = new_stream(CU_STREAM_NON_BLOCKING);
    spin(CU_STREAM_LEGACY, 1000);
    spin(blocking, 1000);
    spin(free_running, 1000);
    pass_us(1000);
    CHECK(is_done(free_running));
    CHECK(!is_done(blocking));
    pass_us(1000);
    CHECK(is_done(blocking));
}

static void check_own_stream(void *argument)
{
    CHECK(is_done(CU_STREAM_PER_THREAD));
    spin(CU_STREAM_PER_THREAD, 500);
    CHECK(!is_done(CU_STREAM_PER_THREAD));
    unsigned long long *id = argument;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
}

CASE(every_thread_has_a_default_stream_of_its_own)
{
    unsigned long long own = 0;
    unsigned long long other = 0;
    new_context();
    OK(cuStreamGetId_ptsz(NULL, &own));
    spin(CU_STREAM_PER_THREAD, 1000);
    in_thread(check_own_stream, &other);
    CHECK(own != other);
    pass_us(1000);
    CHECK(is_done(CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize_ptsz(NULL));
}

CASE(null_means_the_thread_to_per_thread_entries)
{
    unsigned long long named = 0;
    unsigned long long null = 0;
    new_context();
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &named));
    OK(cuStreamGetId_ptsz(NULL, &null));
    CHECK_EQUAL(named, null);
    OK(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &named));
    OK(cuStreamGetId(NULL, &null));
    CHECK_EQUAL(named, null);
}

CASE(streams_tell_what_they_were_made_with)
{
    const CUcontext context = new_context();
    CUstream stream = NULL;
    CUcontext found = NULL;
    CUdevice device = -1;
    unsigned flags = 9;
    int priority = 9;
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
    OK(cuStreamGetPriority(stream, &priority));
    CHECK(priority == -5);
    OK(cuStreamGetFlags(stream, &flags));
    CHECK_EQUAL(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &found));
    CHECK(found == context);
    OK(cuStreamGetDevice(stream, &device));
    CHECK(device == 0);
    OK(cuStreamCreateWithPriority(&stream, 0, 7));
    OK(cuStreamGetPriority(stream, &priority));
    CHECK(priority == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
}

CASE(bad_handles_are_refused)
{
    new_context();
    const CUstream stream = new_stream(0);
    const CUstream dead = new_stream(0);
    int other = 0;
    OK(cuStreamDestroy_v2(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)&other));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)(uintptr_t)0xdeadbeef));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_LEGACY));
    OK(cuStreamSynchronize(stream));
}

CASE(streams_end_with_their_context)
{
    const CUcontext context = new_context();
    const CUstream stream = new_stream(0);
    const CUevent event = new_event();
    spin(stream, 1000000);
    OK(cuCtxDestroy_v2(context));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamQuery(NULL));
    new_context();
    CHECK(is_done(NULL));
}

CASE(destroying_a_stream_does_not_wait_for_it)
{
    new_context();
    const CUstream stream = new_stream(0);
    const CUevent event = new_event();
    spin(stream, 1000);
    OK(cuEventRecord(event, stream));
    OK(cuStreamDestroy_v2(stream));
    CHECK(!has_happened(event));
    pass_us(1000);
    CHECK(has_happened(event));
}

CASE(attributes_are_kept_and_copied)
{
    new_context();
    const CUstream one = new_stream(0);
    const CUstream other = new_stream(0);
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_YIELD};
    OK(cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuStreamCopyAttributes(other, one));
    value.syncPolicy = CU_SYNC_POLICY_AUTO;
    OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    CHECK_EQUAL(value.syncPolicy, CU_SYNC_POLICY_YIELD);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
}

CASE(two_devices_run_at_the_same_time_and_wait_for_each_other)
{
    CUcontext second = NULL;
    const CUcontext first = new_context();
    const CUstream here = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    spin(here, 1000);
    OK(cuEventRecord(event, here));
    OK(cuCtxCreate_v2(&second, 0, 1));
    const CUstream there = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamWaitEvent(there, event, 0));
    spin(there, 1000);
    pass_us(999);
    CHECK(!is_done(there));
    pass_us(1);
    /* From here on the second device works; its driver thread has to notice first. */
    AWAIT((pass_us(100), is_done(there)));
    OK(cuCtxSetCurrent(first));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, there));
}

CASE(events_of_whole_contexts)
{
    const CUcontext context = new_context();
    const CUstream one = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent all = new_event();
    spin(one, 1000);
    spin(other, 3000);
    OK(cuCtxRecordEvent(context, all));
    const CUstream late = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuCtxWaitEvent(context, all));
    spin(late, 1000);
    spin(one, 1000);
    pass_us(2999);
    CHECK(!has_happened(all));
    pass_us(1);
    CHECK(has_happened(all));
    CHECK(!is_done(one));
    CHECK(!is_done(late));
    pass_us(1000);
    CHECK(is_done(one));
    CHECK(is_done(late));
}

CASE(a_lost_device_does_not_hang_who_waits)
{
    new_context();
    const CUstream stream = new_stream(0);
    const CUfunction kernel = test_kernel("aliquot_spin_us_100");
    spin(stream, 1000000);
    CHECK(system("\"$ALIQUOT_TEST_LOSE\"") == 0);
    FAILS(CUDA_ERROR_UNKNOWN, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
    FAILS(CUDA_ERROR_UNKNOWN, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_UNKNOWN, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}
