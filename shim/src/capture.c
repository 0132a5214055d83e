/*
 * Captures: a launch into a capturing stream becomes part of a graph and is not executed.
 *
 * Capture spreads to other streams by waiting for events, so which streams capture is asked of the
 * driver; what is counted here is only whether it has to be asked at all.
 */
#include "hook.h"

#include "throttle.h"

static CUresult begun(CUresult result)
{
    if (result == CUDA_SUCCESS) {
        __atomic_fetch_add(&throttle_captures, 1, __ATOMIC_SEQ_CST);
        for (unsigned i = 0; i < METERS; i++) /* nobody takes the short way meanwhile */
            __atomic_store_n(&meters[i].stream, NO_STREAM, __ATOMIC_SEQ_CST);
    }
    return result;
}

/* A capture that ends without this (its stream is destroyed) only leaves the question standing. */
static CUresult ended(CUresult result)
{
    bool is_over = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                   result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    uint32_t captures = __atomic_load_n(&throttle_captures, __ATOMIC_RELAXED);
    while (is_over && captures > 0 &&
           !__atomic_compare_exchange_n(&throttle_captures, &captures, captures - 1, true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    return result;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    ENTER(cuStreamBeginCapture, stream);
    return begun(REAL(cuStreamBeginCapture, stream));
}

EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    ENTER(cuStreamBeginCapture_ptsz, stream);
    return begun(REAL(cuStreamBeginCapture_ptsz, stream));
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(cuStreamBeginCapture_v2, stream, mode);
    return begun(REAL(cuStreamBeginCapture_v2, stream, mode));
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(cuStreamBeginCapture_v2_ptsz, stream, mode);
    return begun(REAL(cuStreamBeginCapture_v2_ptsz, stream, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                            const CUgraphNode *dependencies,
                                            const CUgraphEdgeData *data, size_t count,
                                            CUstreamCaptureMode mode)
{
    ENTER(cuStreamBeginCaptureToGraph, stream, graph, dependencies, data, count, mode);
    return begun(REAL(cuStreamBeginCaptureToGraph, stream, graph, dependencies, data, count, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                 const CUgraphNode *dependencies,
                                                 const CUgraphEdgeData *data, size_t count,
                                                 CUstreamCaptureMode mode)
{
    ENTER(cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies, data, count, mode);
    return begun(
        REAL(cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies, data, count, mode));
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    ENTER(cuStreamEndCapture, stream, graph);
    return ended(REAL(cuStreamEndCapture, stream, graph));
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    ENTER(cuStreamEndCapture_ptsz, stream, graph);
    return ended(REAL(cuStreamEndCapture_ptsz, stream, graph));
}
