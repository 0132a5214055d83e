/*
 * Graphs and their nodes. Everything here is called under the lock unless it says otherwise.
 */
#pragma once

#include "capture.h"
#include "launch.h"
#include "order.h"

struct graph_memory;
struct user_object;

/* What a node does. Owns what it points to, except contexts, events and functions. */
struct payload {
    CUgraphNodeType type;
    struct context *context; /* where it runs; NULL for nodes that run nowhere */
    union {
        struct kernel_call kernel;
        struct operation *operation; /* memcpy, memset */
        CUDA_HOST_NODE_PARAMS_v2 host;
        struct graph *child;
        CUevent event;
        struct {
            struct graph_memory *memory; /* NULL: a free of memory that no graph allocated */
            CUdeviceptr address;
        } allocation;
        struct {
            CUstreamBatchMemOpParams *operations;
            unsigned count;
            unsigned flags;
        } batch;
    };
};

struct edge {
    struct node *node;
    CUgraphEdgeData data;
};

/* An edge is in both of its nodes. */
struct node {
    struct graph *graph;
    struct node *next;
    struct node *previous;
    unsigned id;       /* in its graph, in order of creation */
    unsigned clone_of; /* the id of the node that this one was cloned from */
    struct edge *before;
    size_t before_count;
    struct edge *after;
    size_t after_count;
    struct payload payload;
    uint64_t mark; /* of walks over the graph ... */
    struct node *walk;
    size_t place; /* ... and of the last topological order */
};

/* What a graph holds of a user object. */
struct user_reference {
    struct user_object *object;
    unsigned count;
};

struct graph {
    unsigned id;
    unsigned clone_of; /* the id of the graph that this one was cloned from */
    unsigned last_node_id;
    struct node *first;
    struct node *last;
    size_t node_count;
    bool is_child;     /* belongs to a node and ends with it */
    bool is_capturing; /* of a capture that has not ended */
    struct user_reference *users;
    size_t user_count;
};

static inline CUgraph graph_handle(const struct graph *graph)
{
    return (CUgraph)(uintptr_t)graph;
}

static inline CUgraphNode node_handle(const struct node *node)
{
    return (CUgraphNode)(uintptr_t)node;
}

CUresult graph_make(struct graph **graph);
CUresult graph_get(CUgraph handle, struct graph **graph);
CUresult node_get(CUgraphNode handle, struct node **node);

/* Ends a graph with its nodes. */
void graph_end(struct graph *graph);
CUresult graph_clone(const struct graph *graph, struct graph **clone);
bool graph_has_memory(const struct graph *graph);

/* A node behind others; takes over the payload, also when it fails. */
CUresult graph_add(struct graph *graph, const struct node_set *after, struct payload *payload,
                   struct node **node);
void node_end(struct node *node);

/* CUDA_ERROR_INVALID_VALUE for an edge that is there, is not there, or goes in a circle. */
CUresult edge_add(struct node *from, struct node *to, CUgraphEdgeData data);
CUresult edge_remove(struct node *from, struct node *to, const CUgraphEdgeData *data);

/* Marks the nodes of the set and everything before them; answers the mark. */
uint64_t graph_mark_before(const struct node_set *set);

/* Numbers the nodes, in node->place, so that each comes after all that it depends on. */
void graph_sort(struct graph *graph);

/* --- entries share these, not under the lock ----------------------------------------------- */

/* A new node as cuGraphAddNode makes it; every other cuGraphAdd...Node is a case of this. */
CUresult node_create(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters);

/* The parameters of a node of that type, and new ones in their place. */
CUresult node_show(CUgraphNode handle, CUgraphNodeType type, CUgraphNodeParams *parameters);
CUresult node_change(CUgraphNode handle, CUgraphNodeParams *parameters);

/* --- payload.c ----------------------------------------------------------------------------- */

CUresult payload_copy(struct payload *to, const struct payload *from);

/* New parameters for old ones; what was set on a kernel's node besides stays there. */
void payload_exchange(struct payload *payload, struct payload *with);
void payload_clear(struct payload *payload);

/* How long the GPU is busy with it; a child graph is longer than its longest path. */
uint64_t payload_duration_ns(const struct payload *payload);

/*
 * From what programs hand over (not under the lock; fills what the parameters give back), and as
 * they read it.
 */
CUresult payload_read(CUgraphNodeParams *parameters, struct payload *payload);
CUresult payload_write(struct payload *payload, CUgraphNodeParams *parameters);

/* --- user_object.c ------------------------------------------------------------------------- */

/* Adds to what the graph holds of an object; the counts are taken over. */
CUresult user_reference_add(struct user_reference **users, size_t *count,
                            struct user_object *object, unsigned references);
CUresult user_references_copy(struct user_reference **to, size_t *to_count,
                              const struct user_reference *from, size_t count);
void user_references_drop(struct user_reference **users, size_t *count);

/* Not under the lock: calls the destructors of objects that nobody holds any more. */
void user_objects_bury(void);

/* --- in a forked child --------------------------------------------------------------------- */

void graphs_forget(void);
void graph_execs_forget(void);
void graph_memory_forget(void);
void user_objects_forget(void);
