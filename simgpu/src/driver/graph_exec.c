/*
 * Executable graphs: made, changed, ended.
 */
#include "graph_exec.h"

#include <string.h>

static struct table execs = TABLE(struct graph_exec, 1 << 16);
static unsigned last_exec_id;

void graph_execs_forget(void)
{
    table_forget(&execs);
    graph_memory_forget();
    user_objects_forget();
}

CUresult exec_get(CUgraphExec handle, struct graph_exec **exec)
{
    *exec = (struct graph_exec *)(uintptr_t)handle;
    return table_holds(&execs, *exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- making and ending --------------------------------------------------------------------- */

static CUresult make(struct graph *graph, cuuint64_t flags, struct graph_exec **exec)
{
    struct graph_exec *fresh = table_take(&execs);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = graph_clone(graph, &fresh->graph);
    if (result == CUDA_SUCCESS) {
        fresh->graph->is_child = true; /* nobody else may end it */
        result = plan_make(fresh->graph, &fresh->plan);
        if (result != CUDA_SUCCESS)
            graph_end(fresh->graph);
    }
    if (result != CUDA_SUCCESS) {
        table_give(&execs, fresh);
        return result;
    }
    fresh->id = ++last_exec_id;
    fresh->flags = flags;
    *exec = fresh;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle, cuuint64_t flags)
{
    const cuuint64_t known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    struct graph *graph = NULL;
    struct graph_exec *exec = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL && (flags & ~known) == 0);
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    order_lock();
    CUresult result = graph_get(graph_handle, &graph);
    if (result == CUDA_SUCCESS && graph->is_capturing)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = make(graph, flags, &exec);
    order_unlock();
    user_objects_bury();
    if (result == CUDA_SUCCESS)
        *handle = (CUgraphExec)(uintptr_t)exec;
    return result;
}

ENTRY cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    return instantiate(exec, graph, flags);
}

ENTRY cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    if (error_node != NULL)
        *error_node = NULL;
    if (log != NULL && log_bytes > 0)
        log[0] = '\0';
    return instantiate(exec, graph, 0);
}
TWIN(cuGraphInstantiate, cuGraphInstantiate_v2);

ENTRY cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    REQUIRE(parameters != NULL);
    parameters->hErrNode_out = NULL;
    const CUresult result = instantiate(exec, graph, parameters->flags);
    parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                             : result == CUDA_ERROR_NOT_SUPPORTED
                                 ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                                 : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}
TWIN(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams);

/* What the program wants destroyed with the graph, after the graph has run to its end. */
struct keepsake {
    struct user_reference *users;
    size_t count;
};

static void release_users(struct context *context, void *arguments)
{
    (void)context;
    struct keepsake *keepsake = arguments;
    order_lock();
    user_references_drop(&keepsake->users, &keepsake->count);
    order_unlock();
    user_objects_bury();
}

static void keep_users(struct graph_exec *exec)
{
    struct keepsake keepsake = {exec->graph->users, exec->graph->user_count};
    const struct task task = {
        .after_all = true,
        .on_host = true,
        .run = release_users,
        .arguments = &keepsake,
        .argument_bytes = sizeof keepsake,
    };
    struct position *before[] = {&exec->last};
    struct position done = {.device = exec->last.device};
    struct context *context = exec->plan->context;
    if (keepsake.count == 0 || context == NULL || position_reached(&exec->last) ||
        order_task(context, before, 1, &task, &done) != CUDA_SUCCESS)
        return;
    exec->graph->users = NULL;
    exec->graph->user_count = 0;
    position_clear(&done);
}

ENTRY cuGraphExecDestroy(CUgraphExec handle)
{
    struct graph_exec *exec = NULL;
    TRY(driver_check());
    order_lock();
    const CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS) {
        keep_users(exec);
        plan_free(exec->plan);
        graph_end(exec->graph);
        position_clear(&exec->last);
        table_give(&execs, exec);
    }
    order_unlock();
    user_objects_bury();
    return result;
}

ENTRY cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    struct graph_exec *exec = NULL;
    TRY(driver_check());
    REQUIRE(flags != NULL);
    order_lock();
    const CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        *flags = exec->flags;
    order_unlock();
    return result;
}

ENTRY cuGraphExecGetId(CUgraphExec handle, unsigned *id)
{
    struct graph_exec *exec = NULL;
    TRY(driver_check());
    REQUIRE(id != NULL);
    order_lock();
    const CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        *id = exec->id;
    order_unlock();
    return result;
}

/* --- changing ------------------------------------------------------------------------------ */

CUresult exec_find(const struct graph_exec *exec, CUgraphNode handle, struct step **step)
{
    struct node *node = NULL;
    TRY(node_get(handle, &node));
    REQUIRE(node->graph->id == exec->graph->clone_of);
    for (size_t i = 0; i < exec->plan->step_count; i++) {
        if (exec->plan->steps[i].node->clone_of == node->id) {
            *step = &exec->plan->steps[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock. */
static CUresult change(struct graph_exec *exec, CUgraphNode node, struct payload *payload)
{
    struct step *step = NULL;
    TRY(exec_find(exec, node, &step));
    REQUIRE(step->node->payload.type == payload->type);
    if (payload->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        REQUIRE(payload->child->node_count == step->node->payload.child->node_count);
        struct plan *child = NULL;
        TRY(plan_make(payload->child, &child));
        plan_free(step->child);
        step->child = child;
    }
    payload_exchange(&step->node->payload, payload);
    plan_refresh(exec->plan);
    return CUDA_SUCCESS;
}

CUresult exec_change(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *parameters)
{
    struct graph_exec *exec = NULL;
    struct payload payload;
    TRY(driver_check());
    REQUIRE(parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            parameters->type != CU_GRAPH_NODE_TYPE_MEM_FREE);
    TRY(payload_read(parameters, &payload));
    order_lock();
    CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = change(exec, node, &payload);
    payload_clear(&payload);
    order_unlock();
    user_objects_bury();
    return result;
}

ENTRY cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    REQUIRE(parameters != NULL);
    return exec_change(exec, node, parameters);
}

/* A node of an exec that may be switched off, and the lock. */
static CUresult switchable_lock(CUgraphExec handle, CUgraphNode node, struct graph_exec **exec,
                                struct step **step)
{
    TRY(driver_check());
    order_lock();
    CUresult result = exec_get(handle, exec);
    if (result == CUDA_SUCCESS)
        result = exec_find(*exec, node, step);
    if (result == CUDA_SUCCESS) {
        const CUgraphNodeType type = (*step)->node->payload.type;
        if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY &&
            type != CU_GRAPH_NODE_TYPE_MEMSET)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        order_unlock();
    return result;
}

ENTRY cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned is_enabled)
{
    struct graph_exec *exec = NULL;
    struct step *step = NULL;
    REQUIRE(is_enabled <= 1);
    TRY(switchable_lock(handle, node, &exec, &step));
    step->is_disabled = is_enabled == 0;
    plan_refresh(exec->plan);
    order_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned *is_enabled)
{
    struct graph_exec *exec = NULL;
    struct step *step = NULL;
    REQUIRE(is_enabled != NULL);
    TRY(switchable_lock(handle, node, &exec, &step));
    *is_enabled = !step->is_disabled;
    order_unlock();
    return CUDA_SUCCESS;
}
