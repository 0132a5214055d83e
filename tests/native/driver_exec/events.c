/* Events: what they stand for, how they are timed, and the errors of both. */
#include "bench.h"

CASE(time_between_events_is_exact)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent start = new_event();
    const CUevent end = new_event();
    spin(stream, 300);
    OK(cuEventRecord(start, stream));
    spin(stream, 5);
    spin(stream, 2000000);
    OK(cuEventRecord(end, stream));
    pass_us(3000000);
    OK(cuEventSynchronize(end));
    CHECK(elapsed_ms(start, end) == 2000.005f);
    CHECK(elapsed_ms(end, start) == -2000.005f);
}

CASE(an_idle_stream_records_at_once)
{
    new_context();
    const CUevent start = new_event();
    const CUevent end = new_event();
    spin(NULL, 10);
    pass_us(10);
    OK(cuEventRecord(start, NULL));
    CHECK(has_happened(start));
    pass_us(7000);
    spin(NULL, 1000);
    OK(cuEventRecord(end, NULL));
    pass_us(50000);
    CHECK(elapsed_ms(start, end) == 8.0f);
}

CASE(recording_again_replaces_what_was_recorded)
{
    new_context();
    const CUstream stream = new_stream(0);
    const CUstream waiting = new_stream(0);
    const CUevent event = new_event();
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(waiting, event, 0));
    spin(stream, 1000);
    OK(cuEventRecord(event, stream));
    CHECK(!has_happened(event));
    CHECK(is_done(waiting));
}

CASE(a_wait_orders_streams)
{
    new_context();
    const CUstream first = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream second = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    spin(first, 2000);
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, CU_EVENT_WAIT_DEFAULT));
    spin(second, 500);
    pass_us(2000);
    CHECK(is_done(first));
    CHECK(!is_done(second));
    pass_us(500);
    CHECK(is_done(second));
}

CASE(an_event_that_was_never_recorded_is_complete)
{
    float milliseconds = 0;
    new_context();
    const CUevent event = new_event();
    CHECK(has_happened(event));
    OK(cuEventSynchronize(event));
    OK(cuStreamWaitEvent(NULL, event, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, event, event));
}

CASE(timing_that_is_impossible_is_refused)
{
    CUevent untimed = NULL;
    float milliseconds = 0;
    new_context();
    const CUevent start = new_event();
    const CUevent end = new_event();
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(start, NULL));
    OK(cuEventRecord(untimed, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(NULL, start, end));
    spin(NULL, 1000);
    OK(cuEventRecord(end, NULL));
    FAILS(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&milliseconds, start, end));
    pass_us(1000);
    OK(cuEventElapsedTime_v2(&milliseconds, start, end));
}

CASE(flags_are_checked)
{
    CUevent event = NULL;
    new_context();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, NULL, 2));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuEventRecordWithFlags(event, NULL, CU_EVENT_RECORD_EXTERNAL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(NULL, event, 2));
}

CASE(bad_events_are_refused)
{
    new_context();
    const CUevent dead = new_event();
    OK(cuEventDestroy_v2(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(dead));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(dead, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(NULL, (CUevent)(uintptr_t)64, 0));
}

CASE(an_event_belongs_to_its_context)
{
    CUcontext other = NULL;
    new_context();
    const CUevent event = new_event();
    OK(cuCtxCreate_v2(&other, 0, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
    OK(cuStreamWaitEvent(NULL, event, 0));
}

CASE(thousands_of_events_come_and_go)
{
    new_context();
    for (int i = 0; i < 20000; i++) {
        const CUevent event = new_event();
        OK(cuEventRecord(event, NULL));
        OK(cuEventDestroy_v2(event));
    }
}
