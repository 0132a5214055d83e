/*
 * Nodes that are no kernels and no copies: host functions, child graphs, events, memory.
 */
#include <string.h>

#include "graph_exec.h"

/* --- nothing, functions, graphs ------------------------------------------------------------ */

ENTRY cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

static CUgraphNodeParams host_of(const CUDA_HOST_NODE_PARAMS *given)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_HOST,
        .host = {.fn = given->fn, .userData = given->userData},
    };
}

ENTRY cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_HOST_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = host_of(given);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_HOST, &parameters));
    *shown = (CUDA_HOST_NODE_PARAMS){parameters.host.fn, parameters.host.userData};
    return CUDA_SUCCESS;
}

ENTRY cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = host_of(given);
    return node_change(node, &parameters);
}

ENTRY cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_HOST_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = host_of(given);
    return exec_change(exec, node, &parameters);
}

ENTRY cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraph child)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    CUgraphNodeParams parameters;
    REQUIRE(child != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_GRAPH, &parameters));
    *child = parameters.graph.graph;
    return CUDA_SUCCESS;
}

ENTRY cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    return exec_change(exec, node, &parameters);
}

/* --- events -------------------------------------------------------------------------------- */

static CUgraphNodeParams record_of(CUevent event)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        .eventRecord = {.event = event},
    };
}

static CUgraphNodeParams wait_of(CUevent event)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        .eventWait = {.event = event},
    };
}

ENTRY cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUevent event)
{
    CUgraphNodeParams parameters = record_of(event);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, CUevent event)
{
    CUgraphNodeParams parameters = wait_of(event);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    CUgraphNodeParams parameters;
    REQUIRE(event != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &parameters));
    *event = parameters.eventRecord.event;
    return CUDA_SUCCESS;
}

ENTRY cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    CUgraphNodeParams parameters;
    REQUIRE(event != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &parameters));
    *event = parameters.eventWait.event;
    return CUDA_SUCCESS;
}

ENTRY cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams parameters = record_of(event);
    return node_change(node, &parameters);
}

ENTRY cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams parameters = wait_of(event);
    return node_change(node, &parameters);
}

ENTRY cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams parameters = record_of(event);
    return exec_change(exec, node, &parameters);
}

ENTRY cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams parameters = wait_of(event);
    return exec_change(exec, node, &parameters);
}

/* --- memory -------------------------------------------------------------------------------- */

ENTRY cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    memcpy(&parameters.alloc, given, sizeof *given);
    TRY(node_create(node, graph, dependencies, NULL, count, &parameters));
    given->dptr = parameters.alloc.dptr;
    return CUDA_SUCCESS;
}

ENTRY cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &parameters));
    memcpy(shown, &parameters.alloc, sizeof *shown);
    return CUDA_SUCCESS;
}

ENTRY cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, CUdeviceptr address)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = address}};
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    CUgraphNodeParams parameters;
    REQUIRE(address != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &parameters));
    *address = parameters.free.dptr;
    return CUDA_SUCCESS;
}

static CUgraphNodeParams batch_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        .memOp = {given->ctx, given->count, given->paramArray, given->flags},
    };
}

ENTRY cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = batch_of(given);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &parameters));
    memcpy(shown, &parameters.memOp, sizeof *shown);
    return CUDA_SUCCESS;
}

ENTRY cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = batch_of(given);
    return node_change(node, &parameters);
}

ENTRY cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = batch_of(given);
    return exec_change(exec, node, &parameters);
}
