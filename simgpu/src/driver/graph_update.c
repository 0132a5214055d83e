/*
 * Updating an executable graph as a whole: the same nodes and edges, other parameters.
 */
#include "graph_exec.h"
#include "graph_memory.h"

/* What keeps two graphs from being the same but for parameters, and where. */
struct difference {
    CUgraphExecUpdateResult kind;
    struct node *node; /* of the new graph */
    struct node *from; /* the other end, if it is an edge */
};

static bool differs(struct difference *difference, CUgraphExecUpdateResult kind, struct node *node)
{
    difference->kind = kind;
    difference->node = node;
    return true;
}

/* Nodes correspond in order of creation; `place` is that order, until the plan sorts again. */
static void number(struct graph *graph)
{
    size_t place = 0;
    for (struct node *node = graph->first; node != NULL; node = node->next)
        node->place = place++;
}

static bool edges_differ(const struct node *old, struct node *fresh, struct difference *difference)
{
    if (old->before_count != fresh->before_count)
        return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, fresh);
    for (size_t i = 0; i < fresh->before_count; i++) {
        size_t k = 0;
        while (k < old->before_count && old->before[k].node->place != fresh->before[i].node->place)
            k++;
        if (k == old->before_count) {
            difference->from = fresh->before[i].node;
            return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, fresh);
        }
    }
    return false;
}

static bool graphs_differ(struct graph *old, struct graph *fresh, struct difference *difference);

static bool payloads_differ(const struct node *old, struct node *fresh,
                            struct difference *difference)
{
    const struct payload *before = &old->payload;
    const struct payload *after = &fresh->payload;
    if (before->type != after->type)
        return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, fresh);
    switch (after->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return graphs_differ(before->child, after->child, difference);
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (before->context != after->context)
            return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE,
                           fresh);
        return false;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (before->context != after->context)
            return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, fresh);
        return false;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (before->allocation.memory->parameters.bytesize !=
            after->allocation.memory->parameters.bytesize)
            return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, fresh);
        return false;
    default:
        return false;
    }
}

static bool graphs_differ(struct graph *old, struct graph *fresh, struct difference *difference)
{
    if (old->node_count != fresh->node_count)
        return differs(difference, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
    number(old);
    number(fresh);
    struct node *before = old->first;
    for (struct node *after = fresh->first; after != NULL;
         after = after->next, before = before->next)
        if (payloads_differ(before, after, difference) || edges_differ(before, after, difference))
            return true;
    return false;
}

/* New parameters for every node, and the new graph's nodes as those that the exec is known by. */
static CUresult take_over(struct graph *old, struct graph *fresh)
{
    struct node *before = old->first;
    for (struct node *after = fresh->first; after != NULL;
         after = after->next, before = before->next) {
        struct payload payload;
        TRY(payload_copy(&payload, &after->payload));
        payload_exchange(&before->payload, &payload);
        payload_clear(&payload);
        before->clone_of = after->id;
    }
    old->clone_of = fresh->id;
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult update(struct graph_exec *exec, struct graph *graph, struct difference *difference)
{
    struct plan *plan = NULL;
    if (graphs_differ(exec->graph, graph, difference)) {
        graph_sort(exec->graph);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    const CUresult result = take_over(exec->graph, graph);
    /* Also after a failure: the plan's order was in the numbers that comparing has used. */
    const CUresult planned = plan_make(exec->graph, &plan);
    if (planned != CUDA_SUCCESS) {
        graph_sort(exec->graph);
        return planned;
    }
    plan_free(exec->plan);
    exec->plan = plan;
    return result;
}

ENTRY cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                           CUgraphExecUpdateResultInfo *info)
{
    struct graph_exec *exec = NULL;
    struct graph *graph = NULL;
    struct difference difference = {.kind = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    TRY(driver_check());
    order_lock();
    CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = graph_get(graph_handle, &graph);
    if (result == CUDA_SUCCESS)
        result = update(exec, graph, &difference);
    if (result != CUDA_SUCCESS && difference.kind == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        difference.kind = CU_GRAPH_EXEC_UPDATE_ERROR;
    order_unlock();
    user_objects_bury();
    if (info != NULL)
        *info = (CUgraphExecUpdateResultInfo){difference.kind, node_handle(difference.node),
                                              node_handle(difference.from)};
    return result;
}

ENTRY cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                        CUgraphExecUpdateResult *kind)
{
    CUgraphExecUpdateResultInfo info;
    const CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    if (error_node != NULL)
        *error_node = info.errorNode;
    if (kind != NULL)
        *kind = info.result;
    return result;
}
