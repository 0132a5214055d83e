/* The four files of a container (or of a local run): found, checked, mapped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "limits_file.h"
#include "usage_file.h"

enum { WHY_BYTES = 320 };

/* One half, mapped for the life of the process, and what was read from it first. */
struct account_files {
    const void *limits; /* shared, read-only */
    size_t limits_bytes;
    struct limits_body body; /* the first valid copy, and the slot it came from */
    int slot;
    void *usage; /* shared */
    size_t usage_bytes;
    struct usage_header shape; /* the header of `usage`, as it was when it was checked */
    volatile bool limits_lost; /* truncated under us: reads as zeroes now */
    volatile bool usage_lost;
};

/*
 * Opens what the container has in /etc/aliquot and /run/aliquot. Only where there is neither a
 * memory nor a compute directory, the environment may name a local run. All four files must be
 * good; if not, `why` says which one is not.
 */
bool account_files_open(struct account_files *memory, struct account_files *compute,
                        char why[WHY_BYTES]);
