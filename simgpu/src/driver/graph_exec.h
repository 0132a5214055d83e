/*
 * Graphs that can be launched. Under the lock unless it says otherwise.
 */
#pragma once

#include "graph.h"

/* A node in the order of running. */
struct step {
    struct node *node;
    struct plan *child; /* of a child graph's node */
    bool is_disabled;
    uint64_t end_ns;          /* after the start of the graph; of simple plans */
    struct position position; /* where it ends, while a launch is being put together */
};

/*
 * How a graph runs. A plan is simple when the GPU does all of it in one context: then it takes as
 * long as its longest path, and is submitted as one piece of work. In other plans, every node takes
 * its own place in the order of the process.
 */
struct plan {
    struct step *steps; /* each behind all that it depends on */
    size_t step_count;
    bool is_simple;
    struct context *context; /* of all its nodes; NULL: of none */
    uint64_t duration_ns;
    size_t kernel_count;
    size_t operation_count;
};

struct graph_exec {
    unsigned id;
    cuuint64_t flags;
    struct graph *graph; /* its own copy */
    struct plan *plan;
    struct position last; /* the end of its last launch: it never runs beside itself */
};

CUresult exec_get(CUgraphExec handle, struct graph_exec **exec);

/* The node of the exec that was made from this one. */
CUresult exec_find(const struct graph_exec *exec, CUgraphNode handle, struct step **step);

/* --- graph_plan.c -------------------------------------------------------------------------- */

CUresult plan_make(struct graph *graph, struct plan **plan);
void plan_free(struct plan *plan);

/* After something in it has changed. */
void plan_refresh(struct plan *plan);

/* --- graph_launch.c ------------------------------------------------------------------------ */

/* Not under the lock: new parameters for one node of an exec. */
CUresult exec_change(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *parameters);
