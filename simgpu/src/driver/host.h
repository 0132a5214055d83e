/* Host memory that devices reach: allocated pinned, or registered by the program. */
#pragma once

#include "driver.h"

struct host_range {
    uint64_t start;
    uint64_t bytes;
    unsigned flags;
    bool is_registered; /* the program's own memory; else ours */
    struct context *context;
    uint64_t buffer_id;
};

/* A copy of what is known about the range that an address lies in; false when there is none. */
bool host_look(uint64_t address, struct host_range *range);

/* Forgets what a closing context has pinned, and frees what was ours. */
void host_close(const struct context *context);

/* In a forked child nothing is pinned; the memory itself was inherited. */
void host_forget(void);
