/*
 * What the driver takes for itself: contexts and code. No call tells how much, so it is seen by
 * looking before and after.
 */
#pragma once

#include "charge.h"

enum { OVERHEAD_PIDS = 256 };

/* What is in use on a device at a moment, by this process and by everybody. */
struct look {
    int device;
    bool knows_own;
    bool knows_all;
    uint64_t own_bytes;
    uint64_t all_bytes;
    uint64_t held_bytes; /* what the account has of this process */
    unsigned pid_count;
    unsigned pids[OVERHEAD_PIDS]; /* that use the device, as NVML numbers them */
};

/*
 * Through NVML, which needs no context and knows what each process uses: a few hundred microseconds
 * on hardware. `before` is the first of two looks, or NULL.
 */
void overhead_look(struct look *look, int device, const struct look *before);

/* Through the driver, in the current context: cheap, and cannot tell processes apart. */
void overhead_glance(struct look *look, int device);

/*
 * By how much this process grew between two looks, apart from what was charged meanwhile. Where
 * only the whole device was seen, a growth above `most` is taken for somebody else's; then, and
 * where nothing was seen, the answer is `otherwise`.
 */
uint64_t overhead_growth(const struct look *before, const struct look *after, uint64_t most,
                         uint64_t otherwise);

/* Whether NVML shows this process to use so much more than the account has of it. */
bool overhead_confirms(int device, uint64_t growth);
