/* Captures: what they record, how they spread, and what breaks them. */
#include "capture_bench.h"

CASE(nothing_runs_while_it_is_captured)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    spin(stream, 1000);
    spin(stream, 2000);
    const CUgraph graph = end_capture(stream);
    CHECK(is_done(stream));
    CHECK_EQUAL(node_count(graph), 2);
    CUgraphNode from = NULL;
    CUgraphNode to = NULL;
    size_t edges = 1;
    OK(cuGraphGetEdges(graph, &from, &to, &edges));
    CHECK_EQUAL(edges, 1);
    OK(cuGraphDestroy(graph));
}

CASE(capture_spreads_over_events_and_must_be_joined)
{
    new_context();
    const CUstream origin = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent fork = new_event();
    const CUevent join = new_event();
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    spin(origin, 100);
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(side, fork, 0));
    CHECK_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    spin(side, 100);
    spin(origin, 100);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
    end_invalid(origin);

    OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(side, fork, 0));
    spin(side, 100);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &graph));
    CHECK_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);

    OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    spin(origin, 100);
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(side, fork, 0));
    spin(side, 100);
    spin(origin, 100);
    OK(cuEventRecord(join, side));
    OK(cuStreamWaitEvent(origin, join, 0));
    spin(origin, 100);
    CHECK_EQUAL(node_count(end_capture(origin)), 4);
    CHECK_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(waiting_for_uncaptured_work_isolates)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent outside = new_event();
    OK(cuEventRecord(outside, NULL));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, outside, 0));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamWaitEvent(stream, outside, 0));
    end_invalid(stream);
}

CASE(two_captures_do_not_merge)
{
    new_context();
    const CUstream one = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, other));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(one, event, 0));
    end_invalid(one);
    end_invalid(other);
}

CASE(the_legacy_stream_is_out_of_bounds)
{
    new_context();
    CUstreamCaptureStatus status;
    CUdeviceptr memory = 0;
    const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    const CUstream free_running = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2(&memory, 4));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));

    OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    CHECK_EQUAL(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(memory, 0, 1, NULL));
    end_invalid(blocking);

    OK(cuStreamBeginCapture_v2(free_running, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD32Async(memory, 0, 1, NULL));
    CHECK_EQUAL(node_count(end_capture(free_running)), 0);
}

CASE(waiting_for_a_capturing_stream_breaks_the_capture)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    end_invalid(stream);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
    end_invalid(stream);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    end_invalid(stream);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, stream));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    end_invalid(stream);
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(event));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(stream, event, 0));
    OK(cuEventRecord(event, stream));
    CHECK(has_happened(event));
}

/* --- what is recorded ---------------------------------------------------------------------- */

static void nothing(void *data)
{
    (void)data;
}

static CUgraphNodeType type_of(CUgraphNode node)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    OK(cuGraphNodeGetType(node, &type));
    return type;
}

CASE(every_kind_of_work_becomes_its_node)
{
    static const CUgraphNodeType expected[] = {
        CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC,    CU_GRAPH_NODE_TYPE_MEM_FREE,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_GRAPH,
    };
    enum { COUNT = sizeof expected / sizeof expected[0] };
    CUdeviceptr memory = 0;
    CUdeviceptr captured = 0;
    CUgraph inner = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode nodes[COUNT];
    size_t count = COUNT;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    OK(cuMemAlloc_v2(&memory, 64));
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphInstantiateWithFlags(&exec, inner, 0));
    OK(cuStreamBeginCapture_v2(stream, GLOBAL));
    spin(stream, 1);
    OK(cuMemcpyDtoDAsync_v2(memory, memory + 32, 32, stream));
    OK(cuMemsetD8Async(memory, 1, 64, stream));
    OK(cuLaunchHostFunc(stream, nothing, NULL));
    OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    OK(cuMemAllocAsync(&captured, 1 << 20, stream));
    OK(cuMemFreeAsync(captured, stream));
    OK(cuStreamWriteValue32_v2(stream, memory, 1, 0));
    OK(cuGraphLaunch(exec, stream));
    const CUgraph graph = end_capture(stream);
    CHECK(captured != 0);
    OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQUAL(count, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQUAL(type_of(nodes[i]), expected[i]);
}

static void callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}

CASE(callbacks_cannot_be_captured)
{
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2(stream, RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(stream, callback, NULL, 0));
    end_invalid(stream);
}

CASE(a_capture_can_be_looked_at_and_steered)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    cuuint64_t same_id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *after = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 9;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &after, &edges, &count));
    CHECK_EQUAL(status, CU_STREAM_CAPTURE_STATUS_NONE);
    FAILS(CUDA_ERROR_ILLEGAL_STATE,
          cuStreamUpdateCaptureDependencies(stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuStreamBeginCapture_v2(stream, GLOBAL));
    spin(stream, 1);
    spin(stream, 1);
    OK(cuStreamGetCaptureInfo(stream, &status, &id));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &same_id, &graph, &after, &count));
    CHECK(id != 0 && id == same_id && graph != NULL);
    CHECK_EQUAL(count, 1);
    CUgraphNode first = after[0];
    CUgraphNode empty = NULL;
    OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    OK(cuStreamUpdateCaptureDependencies(stream, &empty, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &after, &edges, &count));
    CHECK(count == 2 && after[0] == first && after[1] == empty);
    OK(cuStreamUpdateCaptureDependencies_v2(stream, &empty, NULL, 1,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    spin(stream, 1);
    CHECK(end_capture(stream) == graph);
    OK(cuGraphNodeGetDependencies(first, NULL, &count));
    CHECK_EQUAL(count, 1);
}

CASE(capturing_into_a_graph_of_ones_own)
{
    CUgraph graph = NULL;
    CUgraphNode root = NULL;
    CUgraphNode dependent = NULL;
    size_t count = 1;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, GLOBAL));
    spin(stream, 1);
    CHECK(end_capture(stream) == graph);
    OK(cuGraphNodeGetDependentNodes(root, &dependent, &count));
    CHECK_EQUAL(type_of(dependent), CU_GRAPH_NODE_TYPE_KERNEL);
}

CASE(destroying_a_capturing_stream_ends_its_capture)
{
    new_context();
    const CUstream origin = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent fork = new_event();
    OK(cuStreamBeginCapture_v2(origin, GLOBAL));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamWaitEvent(side, fork, 0));
    OK(cuStreamDestroy_v2(side));
    end_invalid(origin);
    OK(cuStreamBeginCapture_v2(origin, GLOBAL));
    OK(cuEventRecord(fork, origin));
    OK(cuStreamDestroy_v2(origin));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(fork));
    CHECK(is_done(NULL));
}
