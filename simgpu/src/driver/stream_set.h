/*
 * Streams from the inside: what the files behind stream.h know of each other.
 */
#pragma once

#include "capture.h"
#include "order.h"

/* Attributes that a program may set on a stream and read back. */
struct stream_attributes {
    CUaccessPolicyWindow access_policy;
    CUsynchronizationPolicy sync_policy;
    CUlaunchAttributeValue domain_map;
    CUlaunchAttributeValue domain;
};

struct stream {
    struct stream *next; /* of the same context */
    struct context *context;
    const void *thread; /* of a thread's own default stream: which thread */
    uint64_t id;
    unsigned flags;
    int priority;
    bool is_legacy;
    bool is_blocking; /* waits for the legacy stream, which waits for it */
    bool is_default;  /* not created by the program and not destroyed by it */
    struct position tail;
    struct stream_attributes attributes;
    struct captured captured;
    struct stream *next_captured; /* into the same graph */
};

/* The streams of a context. */
struct stream_set {
    struct stream *first;
    struct stream *legacy;
    uint64_t blocking_end_ns;    /* of all resolved work on blocking streams */
    uint64_t all_end_ns;         /* of all resolved work */
    struct position floor;       /* before everything on streams that are yet to be created */
    unsigned capturing_blocking; /* blocking streams that capture: the legacy stream is unusable */
};

static inline CUstream stream_handle(const struct stream *stream)
{
    return (CUstream)(uintptr_t)stream;
}

/*
 * The stream that a handle stands for, in a context that can be used, and the lock: after success
 * the caller gives it back with order_unlock().
 */
CUresult stream_lock(CUstream handle, enum default_stream null_means, struct stream **stream);

/* --- under the lock ------------------------------------------------------------------------ */

/* Puts a task at the end of a stream, behind what default streams imply. */
CUresult stream_append(struct stream *stream, const struct task *task);

/* Makes the stream wait for a position, on whatever device. */
CUresult stream_await(struct stream *stream, struct position *position);

/* Whether a task put there now would find everything before it resolved. */
bool stream_is_settled(struct stream *stream);

/* Remembers an end that became known. */
void stream_set_note(struct stream_set *set, uint64_t end_ns, bool blocking);

/* Whether this is a stream that has not been destroyed. */
bool stream_lives(const struct stream *stream);

/* A new stream of the context, and its end. */
CUresult stream_make(struct context *context, unsigned flags, int priority, struct stream **stream);
void stream_end(struct stream *stream);
void stream_table_forget(void);

/* Why a context cannot be used that need not be the current one. */
static inline CUresult context_check(const struct context *context)
{
    const CUresult sticky = __atomic_load_n(&context->sticky, __ATOMIC_RELAXED);
    if (UNLIKELY(*(volatile const uint32_t *)context->device->lost != 0))
        return DEVICE_IS_LOST;
    return sticky;
}
