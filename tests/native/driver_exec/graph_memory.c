/* What graphs allocate when they run, and what lives as long as they do. */
#include "graph_bench.h"

CASE(graph_memory_is_there_while_the_graph_runs)
{
    static unsigned char target[16];
    CUgraphNode alloc = NULL;
    CUgraphNode release = NULL;
    uint64_t used = 1;
    new_context();
    const size_t before = free_bytes();
    const CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 64 * MIB,
    };
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &parameters));
    CHECK(parameters.dptr != 0);
    const CUgraphNode work = add_spin(graph, 1000, &alloc, 1);
    OK(cuGraphAddMemFreeNode(&release, graph, &work, 1, parameters.dptr));
    add_spin(graph, 1000, &release, 1);
    const CUgraphExec exec = instantiate(graph);
    CHECK_EQUAL(free_bytes(), before);
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuGraphLaunch(exec, stream));
    CHECK_EQUAL(free_bytes(), before - 64 * MIB);
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    CHECK_EQUAL(used, 64 * MIB);
    OK(cuGraphLaunch(exec, stream)); /* behind its own free */
    OK(cuMemcpyDtoHAsync_v2(target, parameters.dptr, 16, NULL));
    AWAIT((pass_us(100), is_done(stream)));
    AWAIT(free_bytes() == before);
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
    CHECK_EQUAL(used, 64 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(parameters.dptr));
}

CASE(graph_memory_that_is_not_freed_stays)
{
    CUgraphNode alloc = NULL;
    CUgraphExec freeing = NULL;
    new_context();
    const size_t before = free_bytes();
    const CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 64 * MIB,
    };
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &parameters));
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphLaunch(exec, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
    FLOW(cuMemFree_v2(parameters.dptr));
    CHECK_EQUAL(free_bytes(), before);
    OK(cuGraphLaunch(exec, NULL));
    CHECK_EQUAL(free_bytes(), before - 64 * MIB);
    OK(cuGraphInstantiateWithFlags(&freeing, graph,
                                   CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(freeing, NULL));
    OK(cuGraphLaunch(freeing, NULL));
    CHECK_EQUAL(free_bytes(), before - 64 * MIB);
    parameters.bytesize = 70 * GIB;
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &parameters));
    parameters.bytesize = 20 * GIB;
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &parameters));
    OK(cuGraphInstantiateWithFlags(&freeing, graph,
                                   CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(freeing, NULL));
    CHECK(free_bytes() >= before - 64 * MIB);
}

static int destroyed;

static void destroy(void *data)
{
    CHECK(data == &destroyed);
    destroyed++;
}

CASE(user_objects_live_as_long_as_the_graphs_that_hold_them)
{
    CUuserObject object = NULL;
    new_context();
    const CUgraph graph = new_graph();
    add_spin(graph, 1000, NULL, 0);
    OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphDestroy(graph));
    CHECK_EQUAL(destroyed, 0);
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphExecDestroy(exec));
    CHECK_EQUAL(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0); /* it still runs */
    AWAIT((pass_us(1000), __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) == 1));
    OK(cuUserObjectCreate(&object, &destroyed, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuUserObjectRetain(object, 1));
    OK(cuUserObjectRelease(object, 2));
    CHECK_EQUAL(destroyed, 1);
    OK(cuUserObjectRelease(object, 1));
    CHECK_EQUAL(destroyed, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));
}
