/*
 * Events: places in streams that can be asked about, waited for, and timed.
 */
#pragma once

#include "stream_set.h"

struct event {
    struct context *context;
    struct shared_event *shared; /* between processes (shared_event.h); else NULL */
    unsigned flags;
    bool is_recorded; /* outside of a capture, and not captured since */
    struct position position;
    uint64_t recorded_ns; /* the node's clock at the record: an idle stream gets there at once */
    uint64_t reached_ns;  /* the node's clock when it was reached; 0: not known yet */
    struct captured captured;
};

/* A living event by its handle, and the lock: after success, the caller gives it back. */
CUresult event_lock(CUevent handle, struct event **event);

/* --- under the lock ------------------------------------------------------------------------ */

/* Another living event by its handle. */
CUresult event_find(CUevent handle, struct event **event);

/* Puts the event where the stream, or a graph's node, stands. */
void event_place(struct event *event, const struct position *position);

/* Makes a stream wait for an event that was recorded outside of captures. */
CUresult event_await(struct stream *stream, struct event *event);

void events_close(struct context *context);
void events_forget(void);
