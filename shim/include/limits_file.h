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

/*
 * The word that changes first when something newer than `slot` is published: a reader that
 * remembers its value learns with one load that it has nothing to read. NULL: not a limits file.
 */
const uint64_t *limits_watch(const void *image, size_t bytes, int slot);
