/*
 * Memory that is booked with a device in chunks and handed out in smaller pieces.
 *
 * A context's small allocations share 2 MiB blocks; a pool keeps larger chunks and decides when it
 * lets go of empty ones. Callers hold memory's lock.
 */
#pragma once

#include "space.h"

struct heap {
    struct row row;
    unsigned device;      /* in the node */
    bool is_free;         /* memory of the host: booked nowhere */
    uint64_t chunk_bytes; /* by how much it grows */
    uint64_t most_bytes;  /* what it may have booked in all */
    bool keeps_empty;     /* empty chunks stay until heap_trim; else they go at once */
    uint64_t booked_bytes;
    uint64_t booked_high;
    uint64_t used_bytes;
    uint64_t used_high;
    struct piece *chunks; /* linked by `next`; a chunk's `detail` is the first piece in it */
};

void heap_init(struct heap *heap, unsigned device, uint64_t chunk_bytes);

/* A marked piece of the heap; NULL when the device, or the heap's own limit, has no more. */
struct piece *heap_take(struct heap *heap, uint64_t bytes);

/* Ends a piece; a chunk that becomes empty goes back to the device if the heap is so minded. */
void heap_give(struct heap *heap, struct piece *piece);

/* Gives empty chunks back to the device while the heap keeps at least these bytes booked. */
void heap_trim(struct heap *heap, uint64_t keep_bytes);
