/*
 * Streams as the rest of the driver sees them: where work is queued, and in which order.
 *
 * A *position* is a place in a stream's order. It is resolved when its end on the device's active
 * axis is known, which is the case at once for nearly everything. It stays unresolved behind what
 * the node's timeline cannot foresee: host functions, waits for a memory value, events of another
 * device. Work behind an unresolved position is deferred to a thread of the driver's own
 * (runner.c), so submitting never blocks and never reorders.
 *
 * Handles are checked at every call: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are the default
 * streams of the current context; destroyed and foreign pointers are CUDA_ERROR_INVALID_HANDLE.
 */
#pragma once

#include "driver.h"

/* What a null stream handle means; _ptds and _ptsz entries say per thread. */
enum default_stream { DEFAULT_LEGACY, DEFAULT_PER_THREAD };

enum { OPERATION_ARGUMENT_BYTES = 256 };

/*
 * One piece of stream-ordered work other than a kernel: a copy, a memset, a free.
 *
 * `run` does what the operation does to memory, at once or when everything before it in the stream
 * has happened; it is called without locks and must not wait for streams. `duration_ns` is how long
 * the GPU is busy with it. A capturing stream keeps the whole operation as a graph node instead of
 * running it, and answers the node's parameters from `node`.
 */
struct operation {
    uint64_t duration_ns;
    void (*run)(struct context *context, void *arguments); /* may be NULL */
    _Alignas(16) uint8_t arguments[OPERATION_ARGUMENT_BYTES];
    CUgraphNodeType node_type; /* MEMCPY or MEMSET; EMPTY for what has no node of its own */
    union {
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
    } node;
};

/* Queues the operation on a stream, or captures it. The stream's context is what `run` gets. */
CUresult stream_submit(CUstream handle, enum default_stream null_means,
                       const struct operation *operation);

/*
 * A synchronous call of the current context (cuMemcpyHtoD and its like): ordered as the default
 * stream orders it, done when this returns. Refused as documented while captures are under way.
 */
CUresult stream_run(enum default_stream which, const struct operation *operation);

/* The context that a stream belongs to. */
CUresult stream_context(CUstream handle, enum default_stream null_means, struct context **context);

/* Waits until everything that was queued in the context has happened (cuMemFree, cuCtxSynchronize).
 */
CUresult streams_wait(struct context *context);

/* --- capture ------------------------------------------------------------------------------- */

/*
 * First line of every call that the documentation lists as potentially unsafe during a capture
 * (cuMemAlloc, cuMemFree, cuCtxSynchronize, ...): when the thread's capture mode forbids it, the
 * captures concerned are invalidated and CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED is the answer.
 */
CUresult capture_refuse_unsafe(void);

/* First line of cuEventCreate: a thread that does not capture may not do it during global captures
 * of others. Those who capture may: forking work to another stream needs an event. */
CUresult capture_refuse_foreign(void);

/* First line of cuCtxSynchronize: a context with capturing streams cannot be waited for. */
CUresult capture_refuse_waiting(struct context *context);

/* Whether the stream captures; an invalid handle is an error, an invalidated capture too. */
CUresult stream_capturing(CUstream handle, enum default_stream null_means, bool *capturing);

/*
 * What cuMemAllocAsync and cuMemFreeAsync do on a capturing stream: they become graph nodes. The
 * address is known at once; memory is booked when the graph is launched.
 */
CUresult capture_memory_alloc(CUstream handle, enum default_stream null_means,
                              const CUmemPoolProps *properties, size_t bytes, CUdeviceptr *address);
CUresult capture_memory_free(CUstream handle, enum default_stream null_means, CUdeviceptr address);

/* --- the life of a context ----------------------------------------------------------------- */

/*
 * Called by the context's owner: `open` before anybody can use it (it fills context->streams),
 * `close` when it is destroyed: queued work is dropped, streams, events, modules and functions of
 * the context become invalid handles. `close` does not free device memory: the owner does.
 */
CUresult streams_open(struct context *context);
void streams_close(struct context *context);

/* --- what this half of the driver calls in the other --------------------------------------- */

/* Validate the parameters of a copy or memset and describe it as an operation (copy.c). */
CUresult copy_describe(struct context *context, const CUDA_MEMCPY3D *copy,
                       struct operation *operation);
CUresult memset_describe(struct context *context, const CUDA_MEMSET_NODE_PARAMS *set,
                         struct operation *operation);

/*
 * Device memory of the driver's own: globals of modules. Booked like cuMemAlloc, freed with the
 * context at the latest, seen by copies and by cuPointerGetAttribute (memory.c).
 */
CUresult memory_allocate(struct context *context, size_t bytes, CUdeviceptr *address);
void memory_free(struct context *context, CUdeviceptr address);

/*
 * Memory of graphs: the address range exists from the node's creation to its end and can be copied
 * to and from while it is booked, which a graph does and undoes any number of times (memory.c).
 */
CUresult graph_memory_reserve(struct context *context, size_t bytes, CUdeviceptr *address);
CUresult graph_memory_book(struct context *context, CUdeviceptr address);
void graph_memory_unbook(struct context *context, CUdeviceptr address);
void graph_memory_release(struct context *context, CUdeviceptr address);
