/* Graphs: building, running and changing them. */
#include "graph_bench.h"

/* Launches into the idle stream and measures by events. */
static float run_ms(CUgraphExec exec)
{
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent start = new_event();
    const CUevent end = new_event();
    OK(cuEventRecord(start, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuEventRecord(end, stream));
    pass_us(60000000);
    OK(cuStreamSynchronize(stream));
    return elapsed_ms(start, end);
}

CASE(a_graph_takes_as_long_as_its_longest_path)
{
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode root = add_spin(graph, 1000, NULL, 0);
    const CUgraphNode branches[] = {add_spin(graph, 5000, &root, 1),
                                    add_spin(graph, 2000, &root, 1)};
    const CUgraphNode join = add_spin(graph, 1000, branches, 2);
    CHECK(run_ms(instantiate(graph)) == 7.0f);
    const CUgraphNode alone = add_spin(graph, 9000, NULL, 0);
    CHECK(run_ms(instantiate(graph)) == 9.0f);
    OK(cuGraphAddDependencies(graph, &join, &alone, 1));
    CHECK(run_ms(instantiate(graph)) == 16.0f);
    OK(cuGraphRemoveDependencies(graph, &join, &alone, 1));
    OK(cuGraphDestroyNode(alone));
    CHECK(run_ms(instantiate(graph)) == 7.0f);
}

CASE(launches_of_one_graph_follow_each_other)
{
    new_context();
    const CUgraph graph = new_graph();
    add_spin(graph, 1000, NULL, 0);
    const CUgraphExec exec = instantiate(graph);
    const CUstream one = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuGraphUpload(exec, one));
    OK(cuGraphLaunch(exec, one));
    OK(cuGraphLaunch(exec, other));
    pass_us(1000);
    CHECK(is_done(one));
    CHECK(!is_done(other));
    pass_us(1000);
    CHECK(is_done(other));
}

CASE(copies_of_a_graph_move_bytes)
{
    static unsigned char source[64];
    static unsigned char target[64];
    CUdeviceptr memory = 0;
    CUgraphNode in = NULL;
    CUgraphNode set = NULL;
    CUgraphNode out = NULL;
    const CUcontext context = new_context();
    const CUgraph graph = new_graph();
    OK(cuMemAlloc_v2(&memory, 64));
    const CUDA_MEMCPY3D upload = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                  .srcHost = source,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = memory,
                                  .WidthInBytes = 64,
                                  .Height = 1,
                                  .Depth = 1};
    const CUDA_MEMCPY3D download = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = memory,
                                    .dstMemoryType = CU_MEMORYTYPE_HOST,
                                    .dstHost = target,
                                    .WidthInBytes = 64,
                                    .Height = 1,
                                    .Depth = 1};
    const CUDA_MEMSET_NODE_PARAMS clear = {
        .dst = memory, .value = 9, .elementSize = 1, .width = 16, .height = 1};
    OK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &upload, context));
    OK(cuGraphAddMemsetNode(&set, graph, &in, 1, &clear, context));
    OK(cuGraphAddMemcpyNode(&out, graph, &set, 1, &download, context));
    const CUgraphExec exec = instantiate(graph);
    for (int round = 1; round < 4; round++) {
        memset(source, round, sizeof source);
        run_ms(exec);
        CHECK(target[0] == 9 && target[15] == 9 && target[16] == round && target[63] == round);
    }
    CUDA_MEMCPY3D read_back;
    OK(cuGraphMemcpyNodeGetParams(in, &read_back));
    CHECK(read_back.srcHost == source && read_back.WidthInBytes == 64);
    CUDA_MEMSET_NODE_PARAMS set_back;
    OK(cuGraphMemsetNodeGetParams(set, &set_back));
    CHECK_EQUAL(set_back.width, 16);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(in, &set_back));
}

static int calls;

static void count_call(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_ACQ_REL);
}

CASE(host_nodes_run_between_kernels)
{
    CUgraphNode host = NULL;
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_spin(graph, 1000, NULL, 0);
    const CUDA_HOST_NODE_PARAMS call = {count_call, &calls};
    OK(cuGraphAddHostNode(&host, graph, &first, 1, &call));
    add_spin(graph, 1000, &host, 1);
    const CUgraphExec exec = instantiate(graph);
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    pass_us(999);
    rest();
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 0);
    AWAIT((pass_us(100), is_done(stream)));
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 2);
}

CASE(events_in_graphs_are_timed)
{
    CUgraphNode record[2];
    new_context();
    const CUevent start = new_event();
    const CUevent end = new_event();
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_spin(graph, 1000, NULL, 0);
    OK(cuGraphAddEventRecordNode(&record[0], graph, &first, 1, start));
    const CUgraphNode second = add_spin(graph, 2500, &record[0], 1);
    OK(cuGraphAddEventRecordNode(&record[1], graph, &second, 1, end));
    add_spin(graph, 4000, &record[1], 1);
    CHECK(run_ms(instantiate(graph)) == 7.5f);
    CHECK(elapsed_ms(start, end) == 2.5f);
}

CASE(graphs_wait_for_events)
{
    CUgraphNode wait = NULL;
    new_context();
    const CUstream busy = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent event = new_event();
    const CUgraph graph = new_graph();
    OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, event));
    add_spin(graph, 100, &wait, 1);
    const CUgraphExec exec = instantiate(graph);
    spin(busy, 5000);
    OK(cuEventRecord(event, busy));
    OK(cuGraphLaunch(exec, stream));
    pass_us(5000);
    CHECK(is_done(busy));
    CHECK(!is_done(stream));
    pass_us(100);
    CHECK(is_done(stream));
}

CASE(child_graphs_are_copies)
{
    CUgraphNode child = NULL;
    CUgraph embedded = NULL;
    size_t count = 0;
    new_context();
    const CUgraph inner = new_graph();
    add_spin(inner, 1000, NULL, 0);
    const CUgraph outer = new_graph();
    const CUgraphNode first = add_spin(outer, 500, NULL, 0);
    OK(cuGraphAddChildGraphNode(&child, outer, &first, 1, inner));
    add_spin(inner, 9000, NULL, 0);
    OK(cuGraphChildGraphNodeGetGraph(child, &embedded));
    CHECK(embedded != inner);
    OK(cuGraphGetNodes(embedded, NULL, &count));
    CHECK_EQUAL(count, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(embedded));
    const CUgraphExec exec = instantiate(outer);
    CHECK(run_ms(exec) == 1.5f);
    const CUgraph longer = new_graph();
    add_spin(longer, 3000, NULL, 0);
    OK(cuGraphExecChildGraphNodeSetParams(exec, child, longer));
    CHECK(run_ms(exec) == 3.5f);
    OK(cuGraphDestroy(outer));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(embedded, NULL, &count));
}

CASE(clones_are_independent)
{
    CUgraph clone = NULL;
    CUgraphNode found = NULL;
    CUDA_KERNEL_NODE_PARAMS parameters;
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_spin(graph, 1000, NULL, 0);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, node, clone));
    CHECK(found != node);
    OK(cuGraphKernelNodeGetParams_v2(found, &parameters));
    CHECK_EQUAL(*(uint64_t *)parameters.kernelParams[0], 1000000);
    uint64_t duration_ns = 4000000;
    void *pointers[1];
    parameters = spin_parameters(&duration_ns, pointers);
    OK(cuGraphKernelNodeSetParams_v2(found, &parameters));
    CHECK(run_ms(instantiate(graph)) == 1.0f);
    CHECK(run_ms(instantiate(clone)) == 4.0f);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, node, graph));
}

CASE(executable_graphs_can_be_changed)
{
    uint64_t duration_ns = 3000000;
    void *pointers[1];
    unsigned enabled = 9;
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_spin(graph, 1000, NULL, 0);
    const CUgraphExec exec = instantiate(graph);
    const CUDA_KERNEL_NODE_PARAMS parameters = spin_parameters(&duration_ns, pointers);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters));
    CHECK(run_ms(exec) == 3.0f);
    CHECK(run_ms(instantiate(graph)) == 1.0f);
    OK(cuGraphNodeSetEnabled(exec, node, 0));
    OK(cuGraphNodeGetEnabled(exec, node, &enabled));
    CHECK_EQUAL(enabled, 0);
    CHECK(run_ms(exec) == 0.0f);
    OK(cuGraphNodeSetEnabled(exec, node, 1));
    CHECK(run_ms(exec) == 3.0f);
    const CUgraphNode stranger = add_spin(new_graph(), 1, NULL, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, stranger, 0));
}

CASE(executable_graphs_are_updated_as_a_whole)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphNode empty = NULL;
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_spin(graph, 1000, NULL, 0);
    add_spin(graph, 1000, &first, 1);
    const CUgraphExec exec = instantiate(graph);

    const CUgraph slower = new_graph();
    const CUgraphNode slow = add_spin(slower, 4000, NULL, 0);
    add_spin(slower, 4000, &slow, 1);
    OK(cuGraphExecUpdate_v2(exec, slower, &info));
    CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK(run_ms(exec) == 8.0f);

    const CUgraph parallel = new_graph();
    add_spin(parallel, 1000, NULL, 0);
    const CUgraphNode free_node = add_spin(parallel, 1000, NULL, 0);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, parallel, &info));
    CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CHECK(info.errorNode == free_node);

    const CUgraph other = new_graph();
    OK(cuGraphAddEmptyNode(&empty, other, NULL, 0));
    add_spin(other, 1000, &empty, 1);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
    CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    add_spin(slower, 1, NULL, 0);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, slower, &info));
    CHECK(run_ms(exec) == 8.0f);
}

CASE(edges_must_make_sense)
{
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode a = add_spin(graph, 1, NULL, 0);
    const CUgraphNode b = add_spin(graph, 1, &a, 1);
    const CUgraphNode twice[] = {a, a};
    CUgraphNode node = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &b, &a, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &a, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &b, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &b, &a, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph, twice, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, new_graph(), &a, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(NULL, NULL));
}

CASE(edges_carry_data)
{
    CUgraphNode from = NULL;
    CUgraphNode to = NULL;
    CUgraphEdgeData data = {.from_port = 1, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraphEdgeData found;
    size_t count = 1;
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode a = add_spin(graph, 1, NULL, 0);
    const CUgraphNode b = add_spin(graph, 1, NULL, 0);
    OK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
    OK(cuGraphGetEdges_v2(graph, &from, &to, &found, &count));
    CHECK(from == a && to == b && found.from_port == 1);
    FAILS(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, &from, &to, &count));
    OK(cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1));
}

CASE(any_node_can_be_added_by_its_parameters)
{
    CUgraphNode node = NULL;
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                    .host = {.fn = count_call, .userData = &calls}};
    CUgraphNodeParams shown;
    new_context();
    const CUgraph graph = new_graph();
    OK(cuGraphAddNode(&node, graph, NULL, 0, &parameters));
    OK(cuGraphNodeGetParams(node, &shown));
    CHECK(shown.type == CU_GRAPH_NODE_TYPE_HOST && shown.host.userData == &calls);
    parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    parameters.alloc = (CUDA_MEM_ALLOC_NODE_PARAMS_v2){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 4096,
    };
    OK(cuGraphAddNode_v2(&node, graph, &node, NULL, 1, &parameters));
    CHECK(parameters.alloc.dptr != 0);
    parameters = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, graph, NULL, 0, &parameters));
}

CASE(a_long_chain_is_no_problem)
{
    enum { LENGTH = 20000 };
    CUgraph graph = NULL;
    CUgraph clone = NULL;
    CUgraphNode root = NULL;
    CUgraphNode last = NULL;
    size_t count = 1;
    new_context();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < LENGTH; i++)
        spin(stream, 1);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetRootNodes(graph, &root, &count));
    OK(cuGraphAddEmptyNode(&last, graph, NULL, 0));
    OK(cuGraphAddDependencies(graph, &last, &root, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &root, &last, 1));
    OK(cuGraphClone(&clone, graph));
    CHECK(run_ms(instantiate(clone)) == (float)LENGTH / 1000);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
}

CASE(a_graph_can_be_drawn)
{
    char path[] = "/tmp/aliquot-graph-XXXXXX";
    char text[4096] = "";
    new_context();
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_spin(graph, 1, NULL, 0);
    add_spin(graph, 1, &first, 1);
    const int file = mkstemp(path);
    CHECK(file >= 0);
    OK(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
    FILE *drawn = fopen(path, "r");
    CHECK(drawn != NULL && fread(text, 1, sizeof text - 1, drawn) > 0);
    CHECK(strstr(text, "digraph") != NULL && strstr(text, "aliquot_spin") != NULL);
    CHECK(strstr(text, "->") != NULL);
    fclose(drawn);
    remove(path);
    FAILS(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph, "/nowhere/at/all", 0));
}
