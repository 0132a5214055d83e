/*
 * Capturing: what streams and events remember of it. Everything here is called under the lock.
 */
#pragma once

#include "stream.h"

struct stream;
struct node;
struct graph;
struct payload;

/* A set of graph nodes that whatever comes next depends on. */
struct node_set {
    struct node **nodes;
    CUgraphEdgeData *edges; /* one for each node */
    size_t count;
    size_t capacity;
};

/* One sequence from cuStreamBeginCapture to cuStreamEndCapture. */
struct capture {
    unsigned references; /* streams and events that belong to it */
    uint64_t id;
    CUstreamCaptureStatus status; /* NONE once it has ended */
    CUstreamCaptureMode mode;
    const void *thread;     /* that began it */
    struct stream *streams; /* that capture into it, linked by next_captured */
    struct stream *origin;  /* where it began and has to end */
    struct graph *graph;
    bool owns_graph; /* false: it captures into a graph of the program's */
    struct capture *next;
};

/* A stream's or an event's place in a capture; all zero when it has none. */
struct captured {
    struct capture *capture;
    struct node_set after;
};

/* How many captures are going on; read without the lock, so that calls outside cost nothing. */
extern unsigned capture_ongoing;

/*
 * Whether an operation on the stream is to be captured. Refuses what captures forbid: the legacy
 * stream beside blocking streams that capture, and streams whose capture is invalid.
 */
CUresult stream_captures(struct stream *stream, bool *captures);

/* Refuses to wait for, or ask about, a stream that captures: there is nothing to wait for. */
CUresult stream_refuse_waiting(struct stream *stream);

/* The same for an event that was last recorded in a capture. */
CUresult event_refuse_captured(const struct captured *event);

/* capture_refuse_unsafe() for who holds the lock. */
CUresult capture_refuse_unsafe_locked(void);

/* Invalidates the stream's capture and answers `error`: the call cannot be captured. */
CUresult capture_spoil(struct stream *stream, CUresult error);

/* A stream goes away: its capture cannot be completed without it. */
void capture_abandon(struct stream *stream);

/* Leaves the capture, or forgets that it was in one. */
void captured_clear(struct captured *captured);

/* Adds a copy or a memset to the graph that the stream captures into. */
CUresult capture_operation(struct stream *stream, const struct operation *operation);

/* What recording an event and waiting for one mean when a capture is involved. */
CUresult capture_record(struct stream *stream, struct captured *event);
CUresult capture_wait(struct stream *stream, const struct captured *event, bool is_recorded);

/* The same for events that the graph records and waits for each time it runs. */
CUresult capture_external_record(struct stream *stream, CUevent event);
CUresult capture_external_wait(struct stream *stream, CUevent event);

/* Adds any node to the graph that the stream captures into; takes over the payload. */
CUresult capture_payload(struct stream *stream, struct payload *payload);

/* --- beginning and ending ------------------------------------------------------------------ */

/* The calling thread, as captures know it, and its mode. */
CUstreamCaptureMode *capture_thread(void);

/* A new capture on the stream; `graph` is NULL for a fresh one. */
CUresult capture_begin(struct stream *stream, CUstreamCaptureMode mode, struct graph *graph,
                       const struct node_set *after);

/* Takes all streams out of it; the graph is the caller's then, or ended when it is of no use. */
struct graph *capture_finish(struct capture *capture, bool keeps_graph);

/* In a forked child. */
void capture_forget(void);

/* --- sets of nodes ------------------------------------------------------------------------- */

/* Adds a node, or the edge's data to the one that is there. */
CUresult node_set_add(struct node_set *set, struct node *node, CUgraphEdgeData edge);
CUresult node_set_copy(struct node_set *to, const struct node_set *from);

/* Adds what a program names: nodes of the graph, with edge data or without. */
CUresult node_set_read(struct node_set *set, const struct graph *graph, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t count);
void node_set_clear(struct node_set *set);
