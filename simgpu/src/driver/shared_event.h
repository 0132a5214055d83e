/*
 * Events between processes: two counters in a file that all of them map.
 *
 * A record counts `recorded` up at once and `reached` when its process's GPU gets there. So the
 * event of any process can be asked and waited for without knowing whose timeline it is on.
 */
#pragma once

#include "event_set.h"

struct shared_event;

/* --- under the order's lock ---------------------------------------------------------------- */

/* A record at that place of this process's timeline. */
void shared_event_record(struct shared_event *shared, struct context *context,
                         const struct position *position);

/* Makes the stream wait for the last record of any process. */
CUresult shared_event_await(struct stream *stream, struct shared_event *shared);

bool shared_event_reached(const struct shared_event *shared);
void shared_event_hold(struct shared_event *shared);
void shared_event_end(struct shared_event *shared);

/* --- not under the lock -------------------------------------------------------------------- */

/* Waits for the last record of any process, and drops the hold that keeps `shared` meanwhile. */
CUresult shared_event_wait(struct context *context, struct shared_event *shared);

/* In a forked child the files are the parent's. */
void shared_events_forget(void);
