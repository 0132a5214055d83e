/*
 * Plans: in which order a graph runs, and how long that takes.
 */
#include <stdlib.h>

#include "graph_exec.h"

void plan_free(struct plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->step_count; i++) {
        plan_free(plan->steps[i].child);
        position_clear(&plan->steps[i].position);
    }
    free(plan->steps);
    free(plan);
}

/* Adds a node's context to the plan's; false when they differ. */
static bool fits_context(struct plan *plan, struct context *context)
{
    if (context != NULL && plan->context == NULL)
        plan->context = context;
    return context == NULL || context == plan->context;
}

static bool is_simple(struct plan *plan, const struct step *step)
{
    switch (step->node->payload.type) {
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return false;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return step->child->is_simple && fits_context(plan, step->child->context);
    default:
        return fits_context(plan, step->node->payload.context);
    }
}

static uint64_t duration_of(const struct step *step)
{
    if (step->is_disabled)
        return 0;
    return step->child != NULL ? step->child->duration_ns
                               : payload_duration_ns(&step->node->payload);
}

void plan_refresh(struct plan *plan)
{
    plan->is_simple = true;
    plan->context = NULL;
    plan->duration_ns = 0;
    plan->kernel_count = 0;
    plan->operation_count = 0;
    for (size_t i = 0; i < plan->step_count; i++) {
        struct step *step = &plan->steps[i];
        const CUgraphNodeType type = step->node->payload.type;
        uint64_t start = 0;
        for (size_t k = 0; k < step->node->before_count; k++) {
            const struct step *earlier = &plan->steps[step->node->before[k].node->place];
            start = earlier->end_ns > start ? earlier->end_ns : start;
        }
        step->end_ns = start + duration_of(step);
        if (step->end_ns > plan->duration_ns)
            plan->duration_ns = step->end_ns;
        plan->is_simple = is_simple(plan, step) && plan->is_simple;
        if (step->child != NULL) {
            plan->kernel_count += step->child->kernel_count;
            plan->operation_count += step->child->operation_count;
        } else if (!step->is_disabled) {
            plan->kernel_count += type == CU_GRAPH_NODE_TYPE_KERNEL;
            plan->operation_count +=
                type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET;
        }
    }
}

CUresult plan_make(struct graph *graph, struct plan **plan)
{
    struct plan *fresh = calloc(1, sizeof *fresh);
    struct step *steps = calloc(graph->node_count > 0 ? graph->node_count : 1, sizeof *steps);
    if (fresh == NULL || steps == NULL) {
        free(fresh);
        free(steps);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->steps = steps;
    fresh->step_count = graph->node_count;
    graph_sort(graph);
    CUresult result = CUDA_SUCCESS;
    for (struct node *node = graph->first; node != NULL; node = node->next) {
        steps[node->place].node = node;
        if (node->payload.type == CU_GRAPH_NODE_TYPE_GRAPH && result == CUDA_SUCCESS)
            result = plan_make(node->payload.child, &steps[node->place].child);
    }
    if (result != CUDA_SUCCESS) {
        plan_free(fresh);
        return result;
    }
    plan_refresh(fresh);
    *plan = fresh;
    return CUDA_SUCCESS;
}
