/* The processes of a device, as the caller may see them. */
#pragma once

#include "session.h"

struct process {
    unsigned slot;
    unsigned pid; /* in the caller's pid namespace, never 0 */
    uint64_t used_bytes;
};

/* Writes down the processes that have a context on the device and can be named; their number. */
unsigned list_processes(const struct gpu *gpu, struct process found[SIM_PROCESSES]);
