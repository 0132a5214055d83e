/*
 * What nodes do: copied, ended, read from the program and shown to it.
 */
#include <stdlib.h>
#include <string.h>

#include "event_set.h"
#include "graph_memory.h"
#include "memop.h"

/* --- keeping ------------------------------------------------------------------------------- */

static void *duplicate(const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy != NULL && bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

CUresult payload_copy(struct payload *to, const struct payload *from)
{
    *to = *from;
    switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_call_copy(&to->kernel, &from->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        to->operation = duplicate(from->operation, sizeof *from->operation);
        return to->operation != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        TRY(graph_clone(from->child, &to->child));
        to->child->is_child = true;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (to->allocation.memory != NULL)
            graph_memory_hold(to->allocation.memory);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        to->batch.operations =
            duplicate(from->batch.operations, from->batch.count * sizeof *from->batch.operations);
        return to->batch.operations != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_SUCCESS;
    }
}

void payload_clear(struct payload *payload)
{
    switch (payload->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        kernel_call_clear(&payload->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        free(payload->operation);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        graph_end(payload->child);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        graph_memory_drop(payload->allocation.memory);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        free(payload->batch.operations);
        break;
    default:
        break;
    }
    payload->type = CU_GRAPH_NODE_TYPE_EMPTY;
}

void payload_exchange(struct payload *payload, struct payload *with)
{
    const struct payload before = *payload;
    *payload = *with;
    *with = before;
    if (payload->type == CU_GRAPH_NODE_TYPE_KERNEL && payload->kernel.attribute_count == 0) {
        payload->kernel.attributes = with->kernel.attributes;
        payload->kernel.attribute_count = with->kernel.attribute_count;
        with->kernel.attributes = NULL;
        with->kernel.attribute_count = 0;
    }
}

uint64_t payload_duration_ns(const struct payload *payload)
{
    switch (payload->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return payload->kernel.duration_ns;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return payload->operation->duration_ns;
    default:
        return 0;
    }
}

/* --- reading ------------------------------------------------------------------------------- */

/* A context by its handle, or the current one. */
static CUresult context_named(CUcontext handle, struct context **context)
{
    if (handle != NULL)
        return context_get(handle, context);
    return context_enter(context);
}

static CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS_v3 *given, struct payload *payload)
{
    struct context *context = NULL;
    struct function *function = NULL;
    const struct shape shape = {{given->gridDimX, given->gridDimY, given->gridDimZ},
                                {given->blockDimX, given->blockDimY, given->blockDimZ},
                                given->sharedMemBytes};
    TRY(context_named(given->ctx, &context));
    if (given->kern != NULL)
        TRY(kernel_function(given->kern, context, &function));
    else
        TRY(function_get(context, given->func, &function));
    TRY(kernel_call_make(function, &shape, given->kernelParams, given->extra, &payload->kernel));
    payload->kernel.kernel = given->kern;
    payload->context = function->context;
    return CUDA_SUCCESS;
}

static CUresult read_copy(const CUDA_MEMCPY_NODE_PARAMS *given, struct payload *payload)
{
    REQUIRE(given->flags == 0 && given->reserved == 0);
    TRY(context_named(given->copyCtx, &payload->context));
    payload->operation = calloc(1, sizeof *payload->operation);
    if (payload->operation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = copy_describe(payload->context, &given->copyParams, payload->operation);
    if (result != CUDA_SUCCESS)
        free(payload->operation);
    return result;
}

static CUresult read_set(const CUDA_MEMSET_NODE_PARAMS_v2 *given, struct payload *payload)
{
    const CUDA_MEMSET_NODE_PARAMS set = {given->dst,         given->pitch, given->value,
                                         given->elementSize, given->width, given->height};
    TRY(context_named(given->ctx, &payload->context));
    payload->operation = calloc(1, sizeof *payload->operation);
    if (payload->operation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = memset_describe(payload->context, &set, payload->operation);
    if (result != CUDA_SUCCESS)
        free(payload->operation);
    return result;
}

/* A copy of the graph, or the graph itself, as the program says. */
static CUresult read_child(const CUDA_CHILD_GRAPH_NODE_PARAMS *given, struct payload *payload)
{
    struct graph *graph = NULL;
    TRY(graph_get(given->graph, &graph));
    REQUIRE(!graph->is_child && !graph->is_capturing);
    if (given->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        payload->child = graph;
    } else {
        REQUIRE(given->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
        if (graph_has_memory(graph))
            return CUDA_ERROR_NOT_SUPPORTED;
        TRY(graph_clone(graph, &payload->child));
    }
    payload->child->is_child = true;
    return CUDA_SUCCESS;
}

static CUresult read_alloc(CUDA_MEM_ALLOC_NODE_PARAMS_v2 *given, struct payload *payload)
{
    struct device *device = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    _Static_assert(sizeof parameters == sizeof *given, "both versions are the same memory");
    memcpy(&parameters, given, sizeof parameters);
    REQUIRE(parameters.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    REQUIRE(parameters.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    TRY(device_get(parameters.poolProps.location.id, &device));
    TRY(context_enter(&payload->context));
    if (payload->context->device != device) {
        if (device->primary == NULL)
            return CUDA_ERROR_INVALID_CONTEXT;
        payload->context = device->primary;
    }
    TRY(graph_memory_make(payload->context, &parameters, &payload->allocation.memory));
    payload->allocation.address = payload->allocation.memory->parameters.dptr;
    given->dptr = payload->allocation.address;
    return CUDA_SUCCESS;
}

static CUresult read_free(CUdeviceptr address, struct payload *payload)
{
    TRY(context_enter(&payload->context));
    payload->allocation.address = address;
    order_lock();
    payload->allocation.memory = graph_memory_at(address);
    if (payload->allocation.memory != NULL)
        graph_memory_hold(payload->allocation.memory);
    order_unlock();
    REQUIRE(payload->allocation.memory != NULL || memory_holds(address, 1));
    return CUDA_SUCCESS;
}

static CUresult read_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *given, struct payload *payload)
{
    TRY(context_named(given->ctx, &payload->context));
    REQUIRE(given->flags == 0);
    TRY(memop_check(given->paramArray, given->count));
    payload->batch.operations =
        duplicate(given->paramArray, given->count * sizeof *given->paramArray);
    payload->batch.count = given->count;
    return payload->batch.operations != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult payload_read(CUgraphNodeParams *parameters, struct payload *payload)
{
    CUresult result = CUDA_SUCCESS;
    struct event *event = NULL;
    *payload = (struct payload){.type = parameters->type};
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return read_kernel(&parameters->kernel, payload);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_copy(&parameters->memcpy, payload);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_set(&parameters->memset, payload);
    case CU_GRAPH_NODE_TYPE_HOST:
        REQUIRE(parameters->host.fn != NULL && parameters->host.syncMode <= CU_HOST_TASK_SPINWAIT);
        payload->host = parameters->host;
        return context_named(parameters->host.ctx, &payload->context);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        order_lock();
        result = read_child(&parameters->graph, payload);
        order_unlock();
        return result;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        payload->event = parameters->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT
                             ? parameters->eventWait.event
                             : parameters->eventRecord.event;
        TRY(event_lock(payload->event, &event));
        payload->context = event->context;
        order_unlock();
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return read_alloc(&parameters->alloc, payload);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return read_free(parameters->free.dptr, payload);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return read_batch(&parameters->memOp, payload);
    default:
        driver_log("graph nodes of type %d are not simulated", (int)parameters->type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* --- showing ------------------------------------------------------------------------------- */

static void show_kernel(struct payload *payload, CUDA_KERNEL_NODE_PARAMS_v3 *shown)
{
    const struct shape *shape = &payload->kernel.shape;
    *shown = (CUDA_KERNEL_NODE_PARAMS_v3){
        .func =
            payload->kernel.kernel == NULL ? (CUfunction)(uintptr_t)payload->kernel.function : NULL,
        .gridDimX = shape->grid[0],
        .gridDimY = shape->grid[1],
        .gridDimZ = shape->grid[2],
        .blockDimX = shape->block[0],
        .blockDimY = shape->block[1],
        .blockDimZ = shape->block[2],
        .sharedMemBytes = shape->shared_bytes,
        .kern = payload->kernel.kernel,
        .ctx = context_handle(payload->context),
    };
    kernel_call_show(&payload->kernel, &shown->kernelParams, &shown->extra);
}

CUresult payload_write(struct payload *payload, CUgraphNodeParams *parameters)
{
    const CUcontext context = context_handle(payload->context);
    *parameters = (CUgraphNodeParams){.type = payload->type};
    switch (payload->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        show_kernel(payload, &parameters->kernel);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        parameters->memcpy.copyCtx = context;
        parameters->memcpy.copyParams = payload->operation->node.copy;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS *set = &payload->operation->node.set;
        parameters->memset = (CUDA_MEMSET_NODE_PARAMS_v2){
            set->dst, set->pitch, set->value, set->elementSize, set->width, set->height, context};
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        parameters->host = payload->host;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        parameters->graph.graph = graph_handle(payload->child);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        parameters->eventWait.event = payload->event;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        parameters->eventRecord.event = payload->event;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        memcpy(&parameters->alloc, &payload->allocation.memory->parameters,
               sizeof parameters->alloc);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        parameters->free.dptr = payload->allocation.address;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        parameters->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){
            context, payload->batch.count, payload->batch.operations, payload->batch.flags};
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}
