/* The limits file, for C: the shared declarations and what only C needs of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "limits_layout.h"

_Static_assert(sizeof(struct limits_header) == 128, "the header is part of the file format");
_Static_assert(sizeof(struct limits_device) == 120, "the record is part of the file format");
_Static_assert(sizeof(struct limits_slot) == 1984, "the slot is part of the file format");
_Static_assert(sizeof(struct limits_file) == LIMITS_FILE_BYTES, "the file has one size");

/* No larger cap can be booked: usage words carry 47 bits (see usage_file.h). */
#define LIMITS_CAP_MAX (UINT64_C(1) << 47)

/* How a reader learns with one load that it has nothing to read. */
struct limits_watch {
    const uint64_t *word; /* changes first when something newer is published; NULL: read again */
    uint64_t seen;
};

/* limits_read, and what to watch until the next time. No change can fall between the two. */
int limits_follow(const void *image, size_t bytes, uint32_t kind, struct limits_body *body,
                  struct limits_watch *watch);

static inline int limits_unchanged(const struct limits_watch *watch)
{
    return watch->word != NULL && __atomic_load_n(watch->word, __ATOMIC_ACQUIRE) == watch->seen;
}
