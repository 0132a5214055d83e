/*
 * Sets of graph nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

void node_set_clear(struct node_set *set)
{
    free(set->nodes);
    free(set->edges);
    *set = (struct node_set){0};
}

CUresult node_set_add(struct node_set *set, struct node *node, CUgraphEdgeData edge)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] == node && memcmp(&set->edges[i], &edge, sizeof edge) == 0)
            return CUDA_SUCCESS;
    if (set->count == set->capacity) {
        const size_t capacity = set->capacity == 0 ? 4 : set->capacity * 2;
        struct node **nodes = realloc(set->nodes, capacity * sizeof nodes[0]);
        if (nodes == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        set->nodes = nodes;
        CUgraphEdgeData *edges = realloc(set->edges, capacity * sizeof edges[0]);
        if (edges == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        set->edges = edges;
        set->capacity = capacity;
    }
    set->nodes[set->count] = node;
    set->edges[set->count++] = edge;
    return CUDA_SUCCESS;
}

CUresult node_set_copy(struct node_set *to, const struct node_set *from)
{
    to->count = 0;
    for (size_t i = 0; i < from->count; i++)
        TRY(node_set_add(to, from->nodes[i], from->edges[i]));
    return CUDA_SUCCESS;
}

CUresult node_set_read(struct node_set *set, const struct graph *graph, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count)
{
    REQUIRE(count == 0 || nodes != NULL);
    for (size_t i = 0; i < count; i++) {
        struct node *node = NULL;
        TRY(node_get(nodes[i], &node));
        REQUIRE(node->graph == graph);
        TRY(node_set_add(set, node, edges != NULL ? edges[i] : (CUgraphEdgeData){0}));
    }
    return CUDA_SUCCESS;
}
