/*
 * A picture of a graph, for people: Graphviz' dot language.
 */
#include <stdio.h>

#include "graph.h"

static const char *label_of(CUgraphNodeType type)
{
    static const char *const labels[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
        [CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
        [CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
        [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
        [CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
        [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "EVENT_WAIT",
        [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
        [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
        [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
        [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP",
    };
    const size_t known = sizeof labels / sizeof labels[0];
    return (size_t)type < known && labels[type] != NULL ? labels[type] : "NODE";
}

static void print_node(FILE *file, const struct node *node, unsigned flags)
{
    const struct payload *payload = &node->payload;
    fprintf(file, "  \"%u_%u\" [label=\"%u\\n%s", node->graph->id, node->id, node->id,
            label_of(payload->type));
    if (payload->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        fprintf(file, "\\n%s", payload->kernel.function->code->name);
        if ((flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE |
                      CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) != 0) {
            const struct shape *shape = &payload->kernel.shape;
            fprintf(file, "\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", shape->grid[0], shape->grid[1],
                    shape->grid[2], shape->block[0], shape->block[1], shape->block[2],
                    shape->shared_bytes);
        }
    }
    fprintf(file, "\"];\n");
}

static void print_graph(FILE *file, const struct graph *graph, unsigned flags)
{
    fprintf(file, "subgraph cluster_%u {\n  label=\"graph_%u\";\n", graph->id, graph->id);
    for (const struct node *node = graph->first; node != NULL; node = node->next)
        print_node(file, node, flags);
    for (const struct node *node = graph->first; node != NULL; node = node->next) {
        for (size_t i = 0; i < node->before_count; i++)
            fprintf(file, "  \"%u_%u\" -> \"%u_%u\";\n", graph->id, node->before[i].node->id,
                    graph->id, node->id);
        if (node->payload.type == CU_GRAPH_NODE_TYPE_GRAPH)
            print_graph(file, node->payload.child, flags);
    }
    fprintf(file, "}\n");
}

ENTRY cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned flags)
{
    struct graph *graph = NULL;
    TRY(driver_check());
    REQUIRE(path != NULL);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return CUDA_ERROR_OPERATING_SYSTEM;
    order_lock();
    const CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS) {
        fprintf(file, "digraph dot {\n");
        print_graph(file, graph, flags);
        fprintf(file, "}\n");
    }
    order_unlock();
    return fclose(file) == 0 ? result : CUDA_ERROR_OPERATING_SYSTEM;
}
