/*
 * Allocations that a graph makes when it runs. Under the lock unless it says otherwise.
 */
#pragma once

#include "graph.h"

struct graph_memory {
    struct graph_memory *next;
    unsigned references; /* nodes that allocate or free it */
    struct context *context;
    uint64_t stamp; /* of the context: the addresses end with it */
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    CUmemAccessDesc *accesses;
    bool is_allocated;   /* in the order of streams: allocated and not freed since */
    uint64_t generation; /* counts allocations, so that a late free cannot hit the next one */
};

/* Not under the lock: addresses for an allocation of that size. */
CUresult graph_memory_make(struct context *context, const CUDA_MEM_ALLOC_NODE_PARAMS *parameters,
                           struct graph_memory **memory);

/* The one at that address, or NULL. */
struct graph_memory *graph_memory_at(CUdeviceptr address);
void graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

/* What an alloc and a free node do when their graph is launched. */
CUresult graph_memory_run(struct graph_memory *memory, bool frees_first);
void graph_memory_undo(struct graph_memory *memory);
CUresult graph_memory_stop(struct graph_memory *memory, struct position *when);
