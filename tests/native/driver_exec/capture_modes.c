/* Capture modes: what which thread may do while which capture is going on. */
#include "capture_bench.h"

struct visitor {
    CUstreamCaptureMode mode; /* of the thread */
    CUresult (*call)(CUevent);
    CUevent event;
    CUresult expected;
};

static void visit(void *argument)
{
    struct visitor *visitor = argument;
    OK(cuThreadExchangeStreamCaptureMode(&visitor->mode));
    FAILS(visitor->expected, visitor->call(visitor->event));
}

/* What a call from another thread does to a capture; answers its status after the call. */
static CUstreamCaptureStatus during(CUstreamCaptureMode capture, CUstreamCaptureMode thread,
                                    CUresult (*call)(CUevent), CUresult expected)
{
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    struct visitor visitor = {thread, call, new_event(), expected};
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture_v2(stream, capture));
    in_thread(visit, &visitor);
    const CUstreamCaptureStatus status = status_of(stream);
    cuStreamEndCapture(stream, &graph);
    return status;
}

static CUresult allocate(CUevent unused)
{
    CUdeviceptr memory = 0;
    (void)unused;
    return cuMemAlloc_v2(&memory, 4);
}

static CUresult create_event(CUevent unused)
{
    (void)unused;
    return cuEventCreate(&unused, 0);
}

static CUresult query_stream(CUevent unused)
{
    (void)unused;
    return cuStreamQuery(CU_STREAM_PER_THREAD);
}

CASE(unsafe_calls_of_other_threads_break_global_captures)
{
    const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    new_context();
    CHECK_EQUAL(during(GLOBAL, GLOBAL, cuEventQuery, refused), BROKEN);
    CHECK_EQUAL(during(GLOBAL, GLOBAL, cuEventSynchronize, refused), BROKEN);
    CHECK_EQUAL(during(GLOBAL, GLOBAL, create_event, refused), BROKEN);
    CHECK_EQUAL(during(GLOBAL, GLOBAL, allocate, refused), BROKEN);
    CHECK_EQUAL(during(GLOBAL, GLOBAL, query_stream, CUDA_SUCCESS), ACTIVE);
    CHECK_EQUAL(during(GLOBAL, LOCAL, cuEventQuery, CUDA_SUCCESS), ACTIVE);
    CHECK_EQUAL(during(GLOBAL, RELAXED, cuEventQuery, CUDA_SUCCESS), ACTIVE);
    CHECK_EQUAL(during(GLOBAL, RELAXED, create_event, CUDA_SUCCESS), ACTIVE);
    CHECK_EQUAL(during(LOCAL, GLOBAL, cuEventQuery, CUDA_SUCCESS), ACTIVE);
    CHECK_EQUAL(during(RELAXED, GLOBAL, allocate, CUDA_SUCCESS), ACTIVE);
}

CASE(the_capturing_thread_is_bound_by_its_own_mode)
{
    CUdeviceptr memory = 0;
    CUstreamCaptureMode mode = RELAXED;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    for (int begun = GLOBAL; begun <= LOCAL; begun++) {
        OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)begun));
        OK(cuEventDestroy_v2(new_event())); /* forking needs events */
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&memory, 4));
        end_invalid(stream);
        OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)begun));
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
        end_invalid(stream);
        OK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)begun));
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        CHECK_EQUAL(mode, GLOBAL);
        OK(cuMemAlloc_v2(&memory, 4));
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        CHECK_EQUAL(mode, RELAXED);
        end_capture(stream);
    }
    OK(cuStreamBeginCapture_v2(stream, RELAXED));
    OK(cuMemAlloc_v2(&memory, 4));
    end_capture(stream);
    mode = (CUstreamCaptureMode)3;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(&mode));
}

static void end_here(void *stream)
{
    CUgraph graph = NULL;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(stream, &graph));
}

static void end_relaxed(void *stream)
{
    end_capture(stream);
}

CASE(captures_end_in_the_thread_that_began_them)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture_v2(stream, GLOBAL));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, GLOBAL));
    in_thread(end_here, stream);
    end_invalid(stream);
    OK(cuStreamBeginCapture_v2(stream, RELAXED));
    in_thread(end_relaxed, stream);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)7));
}
