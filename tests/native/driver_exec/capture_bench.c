/* What the programs that try captures have in common. */
#include "capture_bench.h"

CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

size_t node_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

CUgraph end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph != NULL);
    return graph;
}

void end_invalid(CUstream stream)
{
    CUgraph graph = (CUgraph)(uintptr_t)1;
    CHECK_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    CHECK(graph == NULL);
    CHECK_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}
