/*
 * Memory pools: charged for what they have reserved, in use or not.
 */
#pragma once

#include "charge.h"

/* Books what pools have grown or shrunk by since somebody last looked. */
void pools_settle(void);

/* Lets the driver take back what this process's pools on a device hold and do not use. */
void pools_trim(int device);

/* A pool's allocation that is about to be freed, before the driver is asked to. */
struct pooled {
    bool is_known;
    uint64_t place;
    uint64_t owner;
};

/* An allocation of the pool at this place ended with its context. */
void pooled_ended(uint64_t place);

void pooled_leave(struct pooled *pooled, CUdeviceptr address);
CUresult pooled_finish(const struct pooled *pooled, CUdeviceptr address, CUresult result);
