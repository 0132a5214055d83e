/* What the programs that try graphs have in common. */
#include "graph_bench.h"

CUgraph new_graph(void)
{
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

CUDA_KERNEL_NODE_PARAMS spin_parameters(uint64_t *duration_ns, void **pointers)
{
    pointers[0] = duration_ns;
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = test_kernel("aliquot_spin"),
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = pointers,
    };
}

CUgraphNode add_spin(CUgraph graph, uint64_t microseconds, const CUgraphNode *after, size_t count)
{
    uint64_t duration_ns = microseconds * 1000;
    void *pointers[1];
    CUgraphNode node = NULL;
    const CUDA_KERNEL_NODE_PARAMS parameters = spin_parameters(&duration_ns, pointers);
    OK(cuGraphAddKernelNode_v2(&node, graph, after, count, &parameters));
    return node;
}
