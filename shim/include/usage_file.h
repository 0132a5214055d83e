/* The usage file, for C: the shared declarations and the code that its words are written in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits_file.h"
#include "usage_layout.h"

_Static_assert(sizeof(struct usage_header) == 64, "the header is part of the file format");
_Static_assert(sizeof(struct usage_counters) == 64, "one cache line per device");
_Static_assert(sizeof(struct usage_compute_counters) == sizeof(struct usage_counters),
               "both kinds have their counters in the same place");

/* USAGE_CODE * USAGE_CODE_INVERSE == 1 modulo 2^64. */
#define USAGE_CODE_INVERSE UINT64_C(6378838547611259153)

/* Values stay below half of what a code word can carry, so no sum of honest words wraps. */
#define USAGE_VALUE_MAX (UINT64_C(1) << 47)

static inline uint64_t usage_encode(uint64_t value)
{
    return value * USAGE_CODE + 1;
}

/*
 * The sum of the values of `count` code words from the sum of the words. One multiplication both
 * divides and checks: the product with the inverse is the quotient when the division is exact, and
 * larger than UINT64_MAX / USAGE_CODE (so larger than USAGE_VALUE_MAX) when it is not.
 */
static inline uint64_t usage_total(uint64_t sum, uint64_t count)
{
    return (sum - count) * USAGE_CODE_INVERSE;
}

/* An owner in parts. In a word they take 22, 14 and 12 bits, so a slot is claimed by one CAS. */
struct usage_name {
    int32_t pid;           /* 0: nobody; -1: the word is damaged */
    uint32_t namespace_id; /* 0: unknown */
    uint32_t start_id;     /* 0: unknown */
};

static inline uint64_t usage_owner(struct usage_name name)
{
    return usage_encode((uint64_t)(uint32_t)name.pid << 26 | (uint64_t)name.namespace_id << 12 |
                        name.start_id);
}

static inline struct usage_name usage_name(uint64_t owner)
{
    uint64_t value = usage_decode(owner);
    if (value == UINT64_MAX)
        return (struct usage_name){-1, 0, 0};
    return (struct usage_name){(int32_t)(value >> 26),
                               (uint32_t)(value >> 12) & USAGE_NAMESPACE_MASK,
                               (uint32_t)value & USAGE_START_MASK};
}

#define USAGE_FREE UINT64_C(1) /* usage_encode(0): nobody, nothing */
