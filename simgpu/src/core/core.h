/*
 * The simulated node: processes, memory and time, without a word of CUDA in it.
 *
 * One memory-mapped file holds everything that processes share. There is no daemon: whoever calls
 * moves the timeline forward to now. All changes are made under a lock per device with an undo log,
 * so a process that is killed anywhere leaves a state that the next caller rolls back to.
 *
 * Time. For every process and device the node keeps two numbers on the process's own *active*
 * axis, which only runs while the GPU executes that process:
 *   active  how long the GPU has worked for the process so far (its exact busy time)
 *   horizon where on that axis its queued work ends
 * A process is runnable while active < horizon. Runnable processes take turns of SIM_SLICE_NS.
 * What lies inside a process (streams, events, graphs, capture) is not shared: the driver computes
 * with ends on the active axis, and sim_wall() translates one into the node's clock. Work of one
 * process on several streams overlaps, because every submission may start anywhere up to horizon.
 *
 * Functions return 0 or a negative errno unless they say otherwise. Devices are indices into the
 * node's list. The calling process is implied: it attaches on first use and after a fork.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state_layout.h" /* the shared structs; cffi reads that file as its cdef */

/* --- opening ------------------------------------------------------------------------------- */

/*
 * Maps the node that ALIQUOT_SIM_STATE names and keeps it for the life of the process. On failure
 * returns NULL and *why is a sentence for the user ("... was made by another version", ...) that
 * stays until the next failure. Thread-safe and cheap when already open.
 *
 * Looking at the node takes no process slot: the first call under "memory", "time" or
 * sim_count_launch() makes this program a process of the node, and again in a forked child, which
 * starts with nothing in it.
 */
const struct sim_state *sim_node(const char **why);

/* The node's clock: CLOCK_MONOTONIC nanoseconds, the same in every process. */
uint64_t sim_now(void);

/* --- memory -------------------------------------------------------------------------------- */

/* Books device memory for this process; -ENOMEM when the device has less free, -EUSERS when the
 * node has no slot for one more process. In null mode it only counts. */
int sim_reserve(unsigned device, uint64_t bytes);
void sim_release(unsigned device, uint64_t bytes);
uint64_t sim_free_bytes(unsigned device); /* what dead processes had is free */

/* --- time ---------------------------------------------------------------------------------- */

/*
 * Queues work of `duration_ns` that may start at `not_before` on the active axis (or now, if that
 * is later) and returns its end. Streams in order: pass the end of what came before on the stream.
 * A `not_before` beyond all queued work (left from before a cancel) means: after that work.
 */
uint64_t sim_submit(unsigned device, uint64_t not_before, uint64_t duration_ns);

/* This process's active time, the timeline moved to now. */
uint64_t sim_active(unsigned device);

/* Whether `end` has been reached by now. */
bool sim_reached(unsigned device, uint64_t end);

/* Sleeps until `end` is reached, never with a lock held; -EIO when the device is lost meanwhile,
 * -ECANCELED when the work was dropped. */
int sim_wait(unsigned device, uint64_t end);

/*
 * The node's clock when `end` was reached. Exact for the last SIM_SLICES slices of the process;
 * older ends answer with the oldest slice still known. `end` must have been reached.
 *
 * The active axis stands still while the process has no work. So what was recorded on an idle
 * stream happened when it was recorded: the later one of sim_wall() and the clock at the record.
 */
uint64_t sim_wall(unsigned device, uint64_t end);

/* Drops what this process has queued and not finished on the device (context destroyed). */
void sim_cancel(unsigned device);

/* --- counters and faults ------------------------------------------------------------------- */

/* Counts a kernel launch of this process; the only thing a launch does in null mode. */
void sim_count_launch(unsigned device);

/*
 * Asks whether a fault that was injected for this kind of call hits now (and consumes one use).
 * Answers the CUDA or NVML error number to return, or 0, after as long as the fault says.
 */
int sim_fault(unsigned device, enum sim_call call);

/* --- observing (NVML and Python) ----------------------------------------------------------- */

/* Moves the timeline of all devices to now and clears processes that have died. */
void sim_settle(struct sim_state *state);

/* How much of the last complete sampling window the GPU was busy, in percent. */
unsigned sim_utilization(const struct sim_state *state, unsigned device);
