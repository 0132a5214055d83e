/*
 * Launching graphs.
 */
#include <stdlib.h>

#include "event_set.h"
#include "graph_exec.h"
#include "graph_memory.h"
#include "memop.h"
#include "memory.h"
#include "stream_set.h"

/* --- what every launch does ---------------------------------------------------------------- */

/* Memory that the graph allocates is there from the launch on; counts what it has got. */
static CUresult allocate(const struct plan *plan, bool frees_first, size_t *got)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->child != NULL) {
            TRY(allocate(step->child, frees_first, got));
        } else if (step->node->payload.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            TRY(graph_memory_run(step->node->payload.allocation.memory, frees_first));
            (*got)++;
        }
    }
    return CUDA_SUCCESS;
}

/* The first allocations of a launch that failed at a later one. */
static void give_back(const struct plan *plan, size_t *got)
{
    for (size_t i = 0; i < plan->step_count && *got > 0; i++) {
        const struct step *step = &plan->steps[i];
        if (step->child != NULL) {
            give_back(step->child, got);
        } else if (step->node->payload.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            graph_memory_undo(step->node->payload.allocation.memory);
            (*got)--;
        }
    }
}

/* What is left of a free of memory that no graph has allocated. */
static void free_other(struct context *context, void *arguments)
{
    (void)context;
    memory_free_address(*(const CUdeviceptr *)arguments, 1U << PIECE_DEVICE | 1U << PIECE_POOLED);
}

static CUresult free_at(const struct payload *payload, struct position *when)
{
    if (payload->allocation.memory != NULL)
        return graph_memory_stop(payload->allocation.memory, when);
    const struct task task = {
        .after_all = true,
        .run = free_other,
        .arguments = &payload->allocation.address,
        .argument_bytes = sizeof payload->allocation.address,
    };
    struct position done = {.device = when->device};
    TRY(order_task(payload->context, &when, 1, &task, &done));
    position_clear(&done);
    return CUDA_SUCCESS;
}

static CUresult record_at(const struct payload *payload, const struct position *when)
{
    struct event *event = NULL;
    TRY(event_find(payload->event, &event));
    event_place(event, when);
    return CUDA_SUCCESS;
}

/* --- simple plans -------------------------------------------------------------------------- */

/* Copies what the graph's copies and memsets do, in order, to do it without the lock. */
static size_t collect(const struct plan *plan, struct operation *operations, size_t count)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->child != NULL)
            count = collect(step->child, operations, count);
        else if (!step->is_disabled && (step->node->payload.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                                        step->node->payload.type == CU_GRAPH_NODE_TYPE_MEMSET))
            operations[count++] = *step->node->payload.operation;
    }
    return count;
}

/* Events and frees, at their time after the start. */
static CUresult place_marks(const struct plan *plan, unsigned device, uint64_t start_ns)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct step *step = &plan->steps[i];
        const struct payload *payload = &step->node->payload;
        struct position when = {.end_ns = start_ns + step->end_ns, .device = device};
        if (step->child != NULL)
            TRY(place_marks(step->child, device, when.end_ns - step->child->duration_ns));
        else if (payload->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
            TRY(record_at(payload, &when));
        else if (payload->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            TRY(free_at(payload, &when));
    }
    return CUDA_SUCCESS;
}

static CUresult run_simple(struct stream *stream, struct graph_exec *exec)
{
    const struct plan *plan = exec->plan;
    if (plan->operation_count > 0) {
        struct context *context = plan->context;
        struct operation *operations = malloc(plan->operation_count * sizeof *operations);
        if (operations == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const size_t count = collect(plan, operations, 0);
        order_unlock();
        for (size_t i = 0; i < count; i++)
            if (operations[i].run != NULL)
                operations[i].run(context, operations[i].arguments);
        free(operations);
        order_lock();
        struct graph_exec *same = NULL;
        if (!stream_lives(stream) || exec_get((CUgraphExec)(uintptr_t)exec, &same) != CUDA_SUCCESS)
            return CUDA_SUCCESS;
        plan = exec->plan;
    }
    TRY(stream_await(stream, &exec->last));
    TRY(stream_append(stream, &(struct task){.duration_ns = plan->duration_ns}));
    position_set(&exec->last, &stream->tail);
    return place_marks(plan, stream->tail.device, stream->tail.end_ns - plan->duration_ns);
}

/* --- other plans --------------------------------------------------------------------------- */

struct host_call {
    CUhostFn function;
    void *data;
};

static void call_host(struct context *context, void *arguments)
{
    (void)context;
    const struct host_call *call = arguments;
    call->function(call->data);
}

/* A task whose place is behind *position, which moves to its end. */
static CUresult follow(struct context *context, struct position *position, const struct task *task)
{
    struct position *before[] = {position};
    return order_task(context, before, 1, task, position);
}

static CUresult run_plan(struct plan *plan, struct context *context, struct position *start,
                         struct position *end);

/* One node behind step->position, which moves to its end. */
static CUresult run_step(struct step *step, struct context *context)
{
    struct payload *payload = &step->node->payload;
    struct context *own = payload->context != NULL ? payload->context : context;
    struct task task = {0};
    if (step->is_disabled)
        return CUDA_SUCCESS;
    switch (payload->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        task.duration_ns = payload->kernel.duration_ns;
        return follow(own, &step->position, &task);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        task.duration_ns = payload->operation->duration_ns;
        task.run = payload->operation->run;
        task.arguments = payload->operation->arguments;
        task.argument_bytes = sizeof payload->operation->arguments;
        return follow(own, &step->position, &task);
    case CU_GRAPH_NODE_TYPE_HOST: {
        const struct host_call call = {payload->host.fn, payload->host.userData};
        task = (struct task){.after_all = true,
                             .on_host = true,
                             .run = call_host,
                             .arguments = &call,
                             .argument_bytes = sizeof call};
        return follow(own, &step->position, &task);
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        for (unsigned i = 0; i < payload->batch.count; i++)
            if (memop_task(&payload->batch.operations[i], &task))
                TRY(follow(own, &step->position, &task));
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
        struct event *event = NULL;
        TRY(event_find(payload->event, &event));
        struct position *before[] = {&step->position, &event->position};
        return order_task(context, before, event->is_recorded ? 2 : 1, &task, &step->position);
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return record_at(payload, &step->position);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return free_at(payload, &step->position);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return run_plan(step->child, own, &step->position, &step->position);
    default:
        return CUDA_SUCCESS;
    }
}

/* Every node behind those it depends on, or behind `start`; `end` comes behind all of them. */
static CUresult run_plan(struct plan *plan, struct context *context, struct position *start,
                         struct position *end)
{
    const struct task nothing = {0};
    struct position all = {.device = start->device};
    CUresult result = CUDA_SUCCESS;
    position_set(&all, start);
    for (size_t i = 0; result == CUDA_SUCCESS && i < plan->step_count; i++) {
        struct step *step = &plan->steps[i];
        position_set(&step->position, start);
        for (size_t k = 0; result == CUDA_SUCCESS && k < step->node->before_count; k++) {
            struct position *before[] = {&step->position,
                                         &plan->steps[step->node->before[k].node->place].position};
            result = order_task(context, before, 2, &nothing, &step->position);
        }
        if (result == CUDA_SUCCESS)
            result = run_step(step, context);
        struct position *before[] = {&all, &step->position};
        if (result == CUDA_SUCCESS)
            result = order_task(context, before, 2, &nothing, &all);
    }
    for (size_t i = 0; i < plan->step_count; i++)
        position_clear(&plan->steps[i].position);
    position_set(end, &all);
    position_clear(&all);
    return result;
}

static CUresult run_mixed(struct stream *stream, struct graph_exec *exec)
{
    struct position end = {0};
    TRY(stream_await(stream, &exec->last));
    CUresult result = run_plan(exec->plan, stream->context, &stream->tail, &end);
    if (result == CUDA_SUCCESS)
        result = stream_await(stream, &end);
    position_clear(&end);
    position_set(&exec->last, &stream->tail);
    return result;
}

/* --- entries ------------------------------------------------------------------------------- */

/* Under the lock. */
static CUresult run(struct stream *stream, struct graph_exec *exec)
{
    const struct plan *plan = exec->plan;
    for (size_t i = 0; i < plan->kernel_count; i++)
        sim_count_launch(stream->context->device->index);
    if (driver.null_mode)
        return CUDA_SUCCESS;
    const bool frees_first = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    size_t got = 0;
    const CUresult result = allocate(plan, frees_first, &got);
    if (result != CUDA_SUCCESS) {
        give_back(plan, &got);
        return result;
    }
    const bool is_here = plan->context == NULL || plan->context == stream->context;
    if (plan->is_simple && is_here && stream_is_settled(stream) && position_settle(&exec->last))
        return run_simple(stream, exec);
    return run_mixed(stream, exec);
}

/* Under the lock: a launch into a stream that captures becomes a child graph. */
static CUresult capture(struct stream *stream, const struct graph_exec *exec)
{
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    if (graph_has_memory(exec->graph))
        return capture_spoil(stream, CUDA_ERROR_NOT_SUPPORTED);
    TRY(graph_clone(exec->graph, &payload.child));
    payload.child->is_child = true;
    return capture_payload(stream, &payload);
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, enum default_stream null_means)
{
    struct stream *stream = NULL;
    struct graph_exec *exec = NULL;
    struct context *context = NULL;
    bool captures = false;
    TRY(stream_context(stream_handle, null_means, &context));
    if (__atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0)
        TRY(launch_fault(context));
    TRY(stream_lock(stream_handle, null_means, &stream));
    CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS)
        result = captures ? capture(stream, exec) : run(stream, exec);
    order_unlock();
    return result;
}

ENTRY cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, DEFAULT_LEGACY);
}

ENTRY cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, DEFAULT_PER_THREAD);
}

/* Uploading takes no time here: a launch is the same with it and without. */
static CUresult upload(CUgraphExec handle, CUstream stream_handle, enum default_stream null_means)
{
    struct stream *stream = NULL;
    struct graph_exec *exec = NULL;
    TRY(stream_lock(stream_handle, null_means, &stream));
    CUresult result = exec_get(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = stream_refuse_waiting(stream);
    order_unlock();
    return result;
}

ENTRY cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, DEFAULT_LEGACY);
}

ENTRY cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, DEFAULT_PER_THREAD);
}
