/*
 * Allocations that a graph makes when it runs.
 *
 * The order of streams and the order of calls differ: a graph that allocates and frees can be
 * launched again before the first run has come to its free. So `is_allocated` follows the order of
 * streams, and the device's memory is given back when the timeline gets to the free, unless the
 * memory has been allocated again meanwhile.
 */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "stream_set.h"

static struct graph_memory *first;
static uint64_t last_generation;

/* By ordinal, as cuDeviceGetGraphMemAttribute tells it. */
static uint64_t high_bytes[SIM_DEVICES];

static bool is_booked(const struct graph_memory *memory)
{
    return memory_holds(memory->parameters.dptr, 1);
}

CUresult graph_memory_make(struct context *context, const CUDA_MEM_ALLOC_NODE_PARAMS *parameters,
                           struct graph_memory **memory)
{
    REQUIRE(parameters->bytesize > 0);
    REQUIRE(parameters->accessDescCount == 0 || parameters->accessDescs != NULL);
    struct graph_memory *fresh = calloc(1, sizeof *fresh);
    const size_t access_bytes = parameters->accessDescCount * sizeof *fresh->accesses;
    if (fresh != NULL && access_bytes > 0)
        fresh->accesses = malloc(access_bytes);
    if (fresh == NULL || (access_bytes > 0 && fresh->accesses == NULL)) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->parameters = *parameters;
    if (access_bytes > 0)
        memcpy(fresh->accesses, parameters->accessDescs, access_bytes);
    fresh->parameters.accessDescs = fresh->accesses;
    fresh->references = 1;
    fresh->context = context;
    fresh->stamp = context->stamp;
    const CUresult result =
        graph_memory_reserve(context, parameters->bytesize, &fresh->parameters.dptr);
    if (result != CUDA_SUCCESS) {
        free(fresh->accesses);
        free(fresh);
        return result;
    }
    order_lock();
    fresh->next = first;
    first = fresh;
    order_unlock();
    *memory = fresh;
    return CUDA_SUCCESS;
}

struct graph_memory *graph_memory_at(CUdeviceptr address)
{
    struct graph_memory *memory = first;
    while (memory != NULL && memory->parameters.dptr != address)
        memory = memory->next;
    return memory;
}

void graph_memory_hold(struct graph_memory *memory)
{
    memory->references++;
}

/* What is still allocated belongs to the program, even after the graph's end. */
void graph_memory_drop(struct graph_memory *memory)
{
    if (memory == NULL || --memory->references > 0)
        return;
    struct graph_memory **link = &first;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    if (memory->context->stamp == memory->stamp && !memory->is_allocated)
        graph_memory_release(memory->context, memory->parameters.dptr);
    free(memory->accesses);
    free(memory);
}

void graph_memory_forget(void)
{
    first = NULL;
}

/* --- running ------------------------------------------------------------------------------- */

static uint64_t used_bytes(CUdevice ordinal)
{
    uint64_t bytes = 0;
    for (const struct graph_memory *memory = first; memory != NULL; memory = memory->next)
        if (memory->context->device->ordinal == ordinal && is_booked(memory))
            bytes += memory->parameters.bytesize;
    return bytes;
}

CUresult graph_memory_run(struct graph_memory *memory, bool frees_first)
{
    if (memory->context->stamp != memory->stamp)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    /* The program may have freed it itself, which only the memory's owner knows. */
    REQUIRE(frees_first || !memory->is_allocated || !is_booked(memory));
    TRY(graph_memory_book(memory->context, memory->parameters.dptr));
    memory->is_allocated = true;
    memory->generation = ++last_generation;
    const CUdevice ordinal = memory->context->device->ordinal;
    const uint64_t used = used_bytes(ordinal);
    if (used > high_bytes[ordinal])
        high_bytes[ordinal] = used;
    return CUDA_SUCCESS;
}

void graph_memory_undo(struct graph_memory *memory)
{
    memory->is_allocated = false;
    graph_memory_unbook(memory->context, memory->parameters.dptr);
}

struct end {
    CUdeviceptr address;
    uint64_t generation;
};

static void give_back(struct context *context, void *arguments)
{
    const struct end *end = arguments;
    order_lock();
    const struct graph_memory *memory = graph_memory_at(end->address);
    const bool is_over =
        memory != NULL && memory->generation == end->generation && !memory->is_allocated;
    order_unlock();
    if (is_over)
        graph_memory_unbook(context, end->address);
}

CUresult graph_memory_stop(struct graph_memory *memory, struct position *when)
{
    const struct end end = {memory->parameters.dptr, memory->generation};
    const struct task task = {
        .after_all = true,
        .run = give_back,
        .arguments = &end,
        .argument_bytes = sizeof end,
    };
    struct position done = {.device = when->device};
    REQUIRE(memory->is_allocated);
    memory->is_allocated = false;
    TRY(order_task(memory->context, &when, 1, &task, &done));
    position_clear(&done);
    return CUDA_SUCCESS;
}

/* --- captured ------------------------------------------------------------------------------ */

CUresult capture_memory_alloc(CUstream handle, enum default_stream null_means,
                              const CUmemPoolProps *properties, size_t bytes, CUdeviceptr *address)
{
    struct context *context = NULL;
    struct stream *stream = NULL;
    bool captures = false;
    const CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = *properties, .bytesize = bytes};
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    TRY(stream_context(handle, null_means, &context));
    TRY(graph_memory_make(context, &parameters, &payload.allocation.memory));
    payload.context = context;
    payload.allocation.address = payload.allocation.memory->parameters.dptr;
    CUresult result = stream_lock(handle, null_means, &stream);
    if (result == CUDA_SUCCESS)
        result = stream_captures(stream, &captures);
    else
        order_lock();
    if (result == CUDA_SUCCESS && !captures)
        result = CUDA_ERROR_ILLEGAL_STATE;
    const CUdeviceptr reserved = payload.allocation.address;
    if (result == CUDA_SUCCESS)
        result = capture_payload(stream, &payload);
    else
        payload_clear(&payload);
    order_unlock();
    if (result == CUDA_SUCCESS)
        *address = reserved;
    return result;
}

CUresult capture_memory_free(CUstream handle, enum default_stream null_means, CUdeviceptr address)
{
    struct stream *stream = NULL;
    bool captures = false;
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS && !captures)
        result = CUDA_ERROR_ILLEGAL_STATE;
    payload.context = stream->context;
    payload.allocation.address = address;
    payload.allocation.memory = graph_memory_at(address);
    if (result == CUDA_SUCCESS && payload.allocation.memory == NULL && !memory_holds(address, 1))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && payload.allocation.memory != NULL)
        graph_memory_hold(payload.allocation.memory);
    if (result == CUDA_SUCCESS)
        result = capture_payload(stream, &payload);
    order_unlock();
    return result;
}

/* --- accounts ------------------------------------------------------------------------------ */

ENTRY cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(value != NULL && (unsigned)attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    const bool is_high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                         attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    order_lock();
    const uint64_t bytes = is_high ? high_bytes[ordinal] : used_bytes(ordinal);
    order_unlock();
    memcpy(value, &bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

/* The high marks can be set back, and nothing else. */
ENTRY cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    struct device *device = NULL;
    uint64_t wanted = 0;
    TRY(device_get(ordinal, &device));
    REQUIRE(value != NULL);
    REQUIRE(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
            attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    memcpy(&wanted, value, sizeof wanted);
    REQUIRE(wanted == 0);
    order_lock();
    high_bytes[ordinal] = used_bytes(ordinal);
    order_unlock();
    return CUDA_SUCCESS;
}

/* Nothing is kept for later: what graphs have freed is free. */
ENTRY cuDeviceGraphMemTrim(CUdevice ordinal)
{
    struct device *device = NULL;
    return device_get(ordinal, &device);
}
