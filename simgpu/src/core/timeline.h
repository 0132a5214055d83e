/* A device's timeline: who runs when, and what that adds to whose account. */
#pragma once

#include "lock.h"

static inline bool sim_is_runnable(const struct sim_device *device, unsigned slot)
{
    return device->runnable[slot / 64] >> slot % 64 & 1;
}

/* Moves the held device's timeline to `now`, step by step; every step is committed. */
void sim_advance(struct sim_held *held, uint64_t now);

/* The process has work from now on; if nobody else has, its turn starts. */
void sim_enlist(struct sim_held *held, unsigned slot);

/* The process has no work any more; its turn goes to the next. */
void sim_retire(struct sim_held *held, unsigned slot);

/* How long until it is the turn of `slot`, if nobody comes and nobody goes: at least this. */
uint64_t sim_turn_delay(const struct sim_held *held, unsigned slot);
