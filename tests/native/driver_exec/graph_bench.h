/*
 * What the programs that try graphs have in common.
 */
#pragma once

#include "bench.h"

CUgraph new_graph(void);
CUgraphExec instantiate(CUgraph graph);

/* Parameters of a kernel that takes so long; both pointers must outlive their use. */
CUDA_KERNEL_NODE_PARAMS spin_parameters(uint64_t *duration_ns, void **pointers);
CUgraphNode add_spin(CUgraph graph, uint64_t microseconds, const CUgraphNode *after, size_t count);
