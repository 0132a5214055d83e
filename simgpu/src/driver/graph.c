/*
 * Graphs: nodes, and the edges between them.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct table graphs = TABLE(struct graph, 1 << 16);
static struct table nodes = TABLE(struct node, 1 << 20);
static unsigned last_graph_id;
static uint64_t last_mark;

void graphs_forget(void)
{
    table_forget(&graphs);
    table_forget(&nodes);
}

/* --- handles ------------------------------------------------------------------------------- */

CUresult graph_get(CUgraph handle, struct graph **graph)
{
    *graph = (struct graph *)(uintptr_t)handle;
    return table_holds(&graphs, *graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_get(CUgraphNode handle, struct node **node)
{
    *node = (struct node *)(uintptr_t)handle;
    return table_holds(&nodes, *node) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- edges --------------------------------------------------------------------------------- */

static struct edge *edge_to(struct edge *edges, size_t count, const struct node *node,
                            const CUgraphEdgeData *data)
{
    for (size_t i = 0; i < count; i++)
        if (edges[i].node == node &&
            (data == NULL || memcmp(&edges[i].data, data, sizeof *data) == 0))
            return &edges[i];
    return NULL;
}

/* Capacities are the powers of two. */
static bool push(struct edge **edges, size_t *count, struct edge edge)
{
    if ((*count & (*count - 1)) == 0) {
        struct edge *larger = realloc(*edges, (*count == 0 ? 1 : *count * 2) * sizeof edge);
        if (larger == NULL)
            return false;
        *edges = larger;
    }
    (*edges)[(*count)++] = edge;
    return true;
}

static void drop(struct edge *edges, size_t *count, struct edge *edge)
{
    (*count)--;
    memmove(edge, edge + 1, (size_t)(edges + *count - edge) * sizeof *edge);
}

static CUresult connect(struct node *from, struct node *to, CUgraphEdgeData data)
{
    if (!push(&to->before, &to->before_count, (struct edge){from, data}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!push(&from->after, &from->after_count, (struct edge){to, data})) {
        to->before_count--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* The walk's stack runs through the nodes, so that no graph is too deep for it. */
uint64_t graph_mark_before(const struct node_set *set)
{
    const uint64_t mark = ++last_mark;
    struct node *todo = NULL;
    for (size_t i = 0; i < set->count; i++) {
        struct node *node = set->nodes[i];
        if (node->mark == mark)
            continue;
        node->mark = mark;
        node->walk = todo;
        todo = node;
    }
    while (todo != NULL) {
        struct node *node = todo;
        todo = node->walk;
        for (size_t i = 0; i < node->before_count; i++) {
            struct node *earlier = node->before[i].node;
            if (earlier->mark == mark)
                continue;
            earlier->mark = mark;
            earlier->walk = todo;
            todo = earlier;
        }
    }
    return mark;
}

CUresult edge_add(struct node *from, struct node *to, CUgraphEdgeData data)
{
    REQUIRE(from != to && from->graph == to->graph);
    REQUIRE(edge_to(to->before, to->before_count, from, &data) == NULL);
    struct node *start[] = {from};
    const struct node_set set = {.nodes = start, .count = 1};
    REQUIRE(graph_mark_before(&set) != to->mark);
    return connect(from, to, data);
}

CUresult edge_remove(struct node *from, struct node *to, const CUgraphEdgeData *data)
{
    struct edge *before = edge_to(to->before, to->before_count, from, data);
    REQUIRE(before != NULL);
    const CUgraphEdgeData found = before->data;
    drop(to->before, &to->before_count, before);
    drop(from->after, &from->after_count, edge_to(from->after, from->after_count, to, &found));
    return CUDA_SUCCESS;
}

void graph_sort(struct graph *graph)
{
    /* `mark` counts what a node still waits for; the queue runs through `walk`. */
    struct node *first = NULL;
    struct node **end = &first;
    for (struct node *node = graph->first; node != NULL; node = node->next) {
        node->mark = node->before_count;
        node->walk = NULL;
        if (node->mark == 0) {
            *end = node;
            end = &node->walk;
        }
    }
    size_t place = 0;
    for (struct node *node = first; node != NULL; node = node->walk) {
        node->place = place++;
        for (size_t i = 0; i < node->after_count; i++) {
            struct node *later = node->after[i].node;
            if (--later->mark == 0) {
                *end = later;
                end = &later->walk;
            }
        }
    }
    for (struct node *node = graph->first; node != NULL; node = node->next)
        node->mark = 0;
}

/* --- nodes --------------------------------------------------------------------------------- */

static void free_node(struct node *node)
{
    payload_clear(&node->payload);
    free(node->before);
    free(node->after);
    table_give(&nodes, node);
}

CUresult graph_add(struct graph *graph, const struct node_set *after, struct payload *payload,
                   struct node **node)
{
    struct node *fresh = table_take(&nodes);
    if (fresh == NULL) {
        payload_clear(payload);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->graph = graph;
    fresh->payload = *payload;
    for (size_t i = 0; after != NULL && i < after->count; i++) {
        const CUresult result = connect(after->nodes[i], fresh, after->edges[i]);
        if (result != CUDA_SUCCESS) {
            while (fresh->before_count > 0)
                edge_remove(fresh->before[0].node, fresh, NULL);
            free_node(fresh);
            return result;
        }
    }
    fresh->id = ++graph->last_node_id;
    fresh->previous = graph->last;
    if (graph->last != NULL)
        graph->last->next = fresh;
    else
        graph->first = fresh;
    graph->last = fresh;
    graph->node_count++;
    *node = fresh;
    return CUDA_SUCCESS;
}

void node_end(struct node *node)
{
    struct graph *graph = node->graph;
    while (node->before_count > 0)
        edge_remove(node->before[0].node, node, NULL);
    while (node->after_count > 0)
        edge_remove(node, node->after[0].node, NULL);
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        graph->first = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    else
        graph->last = node->previous;
    graph->node_count--;
    free_node(node);
}

/* --- graphs -------------------------------------------------------------------------------- */

CUresult graph_make(struct graph **graph)
{
    struct graph *fresh = table_take(&graphs);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->id = ++last_graph_id;
    *graph = fresh;
    return CUDA_SUCCESS;
}

void graph_end(struct graph *graph)
{
    struct node *node = graph->first;
    while (node != NULL) {
        struct node *next = node->next;
        free_node(node);
        node = next;
    }
    user_references_drop(&graph->users, &graph->user_count);
    table_give(&graphs, graph);
}

bool graph_has_memory(const struct graph *graph)
{
    for (const struct node *node = graph->first; node != NULL; node = node->next)
        if (node->payload.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            node->payload.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
            (node->payload.type == CU_GRAPH_NODE_TYPE_GRAPH &&
             graph_has_memory(node->payload.child)))
            return true;
    return false;
}

/* Both lists of nodes run in parallel; `walk` leads from a node to its copy. */
static CUresult clone_nodes(const struct graph *graph, struct graph *clone)
{
    for (struct node *node = graph->first; node != NULL; node = node->next) {
        struct payload payload;
        struct node *copy = NULL;
        TRY(payload_copy(&payload, &node->payload));
        TRY(graph_add(clone, NULL, &payload, &copy));
        copy->clone_of = node->id;
        node->walk = copy;
    }
    for (const struct node *node = graph->first; node != NULL; node = node->next)
        for (size_t i = 0; i < node->before_count; i++)
            TRY(connect(node->before[i].node->walk, node->walk, node->before[i].data));
    return CUDA_SUCCESS;
}

CUresult graph_clone(const struct graph *graph, struct graph **clone)
{
    struct graph *fresh = NULL;
    TRY(graph_make(&fresh));
    fresh->clone_of = graph->id;
    CUresult result =
        user_references_copy(&fresh->users, &fresh->user_count, graph->users, graph->user_count);
    if (result == CUDA_SUCCESS)
        result = clone_nodes(graph, fresh);
    if (result == CUDA_SUCCESS)
        *clone = fresh;
    else
        graph_end(fresh);
    return result;
}
