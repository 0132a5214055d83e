/*
 * Looking at graphs: nodes, edges, types and ids.
 */
#include "graph.h"

static bool is_plain(const CUgraphEdgeData *data)
{
    return data->from_port == 0 && data->to_port == 0 && data->type == 0;
}

/* How many a list has room for, and how many there are: programs ask first without a list. */
struct list {
    size_t room;
    size_t count;
};

/* The rest of a list that is longer than what there is to tell is set to null. */
static void finish_nodes(CUgraphNode *nodes, size_t room, size_t told)
{
    for (size_t i = told; nodes != NULL && i < room; i++)
        nodes[i] = NULL;
}

/* --- nodes of a graph ---------------------------------------------------------------------- */

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool only_roots)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    REQUIRE(count != NULL);
    order_lock();
    const CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS) {
        size_t found = 0;
        for (const struct node *node = graph->first; node != NULL; node = node->next) {
            if (only_roots && node->before_count > 0)
                continue;
            if (nodes != NULL && found < *count)
                nodes[found] = node_handle(node);
            found++;
        }
        finish_nodes(nodes, *count, found);
        if (nodes == NULL || found < *count)
            *count = found;
    }
    order_unlock();
    return result;
}

ENTRY cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, false);
}

ENTRY cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, true);
}

/* --- edges of a graph ---------------------------------------------------------------------- */

/* Under the lock. */
static CUresult edges_of(const struct graph *graph, CUgraphNode *from, CUgraphNode *to,
                         CUgraphEdgeData *data, struct list *list)
{
    for (const struct node *node = graph->first; node != NULL; node = node->next) {
        for (size_t i = 0; i < node->before_count; i++) {
            if (from != NULL && list->count < list->room) {
                if (data == NULL && !is_plain(&node->before[i].data))
                    return CUDA_ERROR_LOSSY_QUERY;
                from[list->count] = node_handle(node->before[i].node);
                to[list->count] = node_handle(node);
                if (data != NULL)
                    data[list->count] = node->before[i].data;
            }
            list->count++;
        }
    }
    return CUDA_SUCCESS;
}

ENTRY cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                         size_t *count)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    REQUIRE(count != NULL && (from == NULL) == (to == NULL) && (data == NULL || from != NULL));
    struct list list = {.room = *count};
    order_lock();
    CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS)
        result = edges_of(graph, from, to, data, &list);
    order_unlock();
    TRY(result);
    finish_nodes(from, list.room, list.count);
    finish_nodes(to, list.room, list.count);
    if (from == NULL || list.count < list.room)
        *count = list.count;
    return CUDA_SUCCESS;
}

ENTRY cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(handle, from, to, NULL, count);
}

/* --- neighbours of a node ------------------------------------------------------------------ */

static CUresult list_neighbours(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data,
                                size_t *count, bool after)
{
    struct node *node = NULL;
    TRY(driver_check());
    REQUIRE(count != NULL && (data == NULL || nodes != NULL));
    order_lock();
    CUresult result = node_get(handle, &node);
    if (result == CUDA_SUCCESS) {
        const struct edge *edges = after ? node->after : node->before;
        const size_t found = after ? node->after_count : node->before_count;
        for (size_t i = 0; nodes != NULL && i < found && i < *count; i++) {
            if (data == NULL && !is_plain(&edges[i].data))
                result = CUDA_ERROR_LOSSY_QUERY;
            nodes[i] = node_handle(edges[i].node);
            if (data != NULL)
                data[i] = edges[i].data;
        }
        finish_nodes(nodes, *count, found);
        if (nodes == NULL || found < *count)
            *count = found;
    }
    order_unlock();
    return result;
}

ENTRY cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                    size_t *count)
{
    return list_neighbours(node, nodes, data, count, false);
}

ENTRY cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return list_neighbours(node, nodes, NULL, count, false);
}

ENTRY cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                      size_t *count)
{
    return list_neighbours(node, nodes, data, count, true);
}

ENTRY cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return list_neighbours(node, nodes, NULL, count, true);
}

/* --- one node, one graph ------------------------------------------------------------------- */

/* An entry that asks one thing about a node. */
#define QUESTION(name, type, parameter, expression)                                                \
    ENTRY name(CUgraphNode handle, type *parameter)                                                \
    {                                                                                              \
        struct node *node = NULL;                                                                  \
        TRY(driver_check());                                                                       \
        REQUIRE(parameter != NULL);                                                                \
        order_lock();                                                                              \
        const CUresult result = node_get(handle, &node);                                           \
        if (result == CUDA_SUCCESS)                                                                \
            *parameter = (expression);                                                             \
        order_unlock();                                                                            \
        return result;                                                                             \
    }

QUESTION(cuGraphNodeGetType, CUgraphNodeType, type, node->payload.type)
QUESTION(cuGraphNodeGetContainingGraph, CUgraph, graph, graph_handle(node->graph))
QUESTION(cuGraphNodeGetLocalId, unsigned, id, node->id)
QUESTION(cuGraphNodeGetToolsId, unsigned long long, id,
         (unsigned long long)node->graph->id << 32 | node->id)

ENTRY cuGraphGetId(CUgraph handle, unsigned *id)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    REQUIRE(id != NULL);
    order_lock();
    const CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS)
        *id = graph->id;
    order_unlock();
    return result;
}
