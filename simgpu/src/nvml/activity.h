/*
 * How busy devices and processes were, by sampling windows of SIM_WINDOW_NS.
 *
 * A window is the node's clock divided by that length. Only complete windows are shown, and a
 * window's time stamp is its end, as microseconds since 1970, as NVML has them.
 */
#pragma once

#include "session.h"

/* The newest window that the device's timeline has wholly passed. */
uint64_t last_window(const struct gpu *gpu);

unsigned long long window_timestamp(uint64_t window);

/* The first window whose time stamp is later, and still remembered; 0 asks for all of them. */
uint64_t first_window_after(const struct gpu *gpu, unsigned long long timestamp);

/* How long the device worked for a process within [first, last]. */
uint64_t busy_within(const struct sim_usage *usage, uint64_t first, uint64_t last);

/* The window in which the process was first busy, as far as remembered; UINT64_MAX: never. */
uint64_t first_busy_window(const struct sim_usage *usage);

/* Percent of one window in which the device was busy for the processes that live now. */
unsigned window_percent(const struct gpu *gpu, uint64_t window);

/* Percent of the recent past in which the device was busy. */
unsigned recent_percent(const struct gpu *gpu);

/* Percent of time in which memory was read or written, if kernels ran for `percent` of it. */
unsigned memory_percent(unsigned percent);

/* How long the device was busy in all, since the node was made; never less than before. */
uint64_t total_busy_ns(const struct gpu *gpu);
