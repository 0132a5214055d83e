/*
 * Building graphs: nodes in, nodes out, edges, copies.
 */
#include "graph.h"

/* --- graphs -------------------------------------------------------------------------------- */

ENTRY cuGraphCreate(CUgraph *handle, unsigned flags)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL && flags == 0);
    order_lock();
    const CUresult result = graph_make(&graph);
    order_unlock();
    if (result == CUDA_SUCCESS)
        *handle = graph_handle(graph);
    return result;
}

ENTRY cuGraphDestroy(CUgraph handle)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    order_lock();
    CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS && (graph->is_child || graph->is_capturing))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        graph_end(graph);
    order_unlock();
    user_objects_bury();
    return result;
}

ENTRY cuGraphClone(CUgraph *handle, CUgraph original)
{
    struct graph *graph = NULL;
    struct graph *clone = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL);
    order_lock();
    CUresult result = graph_get(original, &graph);
    if (result == CUDA_SUCCESS && graph_has_memory(graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = graph_clone(graph, &clone);
    order_unlock();
    user_objects_bury();
    if (result == CUDA_SUCCESS)
        *handle = graph_handle(clone);
    return result;
}

ENTRY cuGraphNodeFindInClone(CUgraphNode *handle, CUgraphNode original, CUgraph clone_handle)
{
    struct graph *clone = NULL;
    struct node *node = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL);
    order_lock();
    CUresult result = graph_get(clone_handle, &clone);
    if (result == CUDA_SUCCESS)
        result = node_get(original, &node);
    if (result == CUDA_SUCCESS && clone->clone_of != node->graph->id)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        const struct node *copy = clone->first;
        while (copy != NULL && copy->clone_of != node->id)
            copy = copy->next;
        if (copy == NULL)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *handle = node_handle(copy);
    }
    order_unlock();
    return result;
}

/* --- nodes --------------------------------------------------------------------------------- */

CUresult node_create(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters)
{
    struct payload payload;
    struct node_set after = {0};
    struct graph *graph = NULL;
    struct node *node = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL && parameters != NULL);
    TRY(payload_read(parameters, &payload));
    order_lock();
    CUresult result = graph_get(graph_handle, &graph);
    if (result == CUDA_SUCCESS)
        result = node_set_read(&after, graph, dependencies, edges, count);
    if (result == CUDA_SUCCESS && after.count != count)
        result = CUDA_ERROR_INVALID_VALUE; /* a node is named twice */
    if (result == CUDA_SUCCESS)
        result = graph_add(graph, &after, &payload, &node);
    else
        payload_clear(&payload);
    order_unlock();
    node_set_clear(&after);
    if (result == CUDA_SUCCESS)
        *handle = node_handle(node);
    return result;
}

ENTRY cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters)
{
    return node_create(node, graph, dependencies, edges, count, parameters);
}
TWIN(cuGraphAddNode_v3, cuGraphAddNode_v2);

ENTRY cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                     size_t count, CUgraphNodeParams *parameters)
{
    return node_create(node, graph, dependencies, NULL, count, parameters);
}

ENTRY cuGraphDestroyNode(CUgraphNode handle)
{
    struct node *node = NULL;
    TRY(driver_check());
    order_lock();
    CUresult result = node_get(handle, &node);
    if (result == CUDA_SUCCESS && node->graph->is_capturing)
        result = CUDA_ERROR_INVALID_VALUE;
    /* An allocation's address may be in use in other nodes: such nodes stay with their graph. */
    if (result == CUDA_SUCCESS && (node->payload.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                                   node->payload.type == CU_GRAPH_NODE_TYPE_MEM_FREE))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        node_end(node);
    order_unlock();
    user_objects_bury();
    return result;
}

/* --- edges --------------------------------------------------------------------------------- */

/* Under the lock: both ends of an edge of the graph. */
static CUresult ends(CUgraph graph_handle, CUgraphNode from_handle, CUgraphNode to_handle,
                     struct node **from, struct node **to)
{
    struct graph *graph = NULL;
    TRY(graph_get(graph_handle, &graph));
    TRY(node_get(from_handle, from));
    TRY(node_get(to_handle, to));
    REQUIRE((*from)->graph == graph && (*to)->graph == graph);
    return CUDA_SUCCESS;
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from_handles,
                             const CUgraphNode *to_handles, const CUgraphEdgeData *edges,
                             size_t count, bool adds)
{
    CUresult result = CUDA_SUCCESS;
    TRY(driver_check());
    REQUIRE(count == 0 || (from_handles != NULL && to_handles != NULL));
    order_lock();
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        struct node *from = NULL;
        struct node *to = NULL;
        result = ends(graph, from_handles[i], to_handles[i], &from, &to);
        if (result == CUDA_SUCCESS && adds)
            result = edge_add(from, to, edges != NULL ? edges[i] : (CUgraphEdgeData){0});
        else if (result == CUDA_SUCCESS)
            result = edge_remove(from, to, edges != NULL ? &edges[i] : NULL);
    }
    order_unlock();
    return result;
}

ENTRY cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *edges, size_t count)
{
    return change_edges(graph, from, to, edges, count, true);
}

ENTRY cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             size_t count)
{
    return change_edges(graph, from, to, NULL, count, true);
}

ENTRY cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count)
{
    return change_edges(graph, from, to, edges, count, false);
}

ENTRY cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    return change_edges(graph, from, to, NULL, count, false);
}
