/*
 * What this process holds apart from blocks of device memory (see blocks.h): for every handle that
 * can be given back, how much it was charged, where, and what it lives in.
 *
 * Constant time whatever is alive. A forked child starts empty, as its driver does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a key is. Keys of different kinds may be equal. */
enum kind {
    KIND_ADDRESS = 1, /* a device address that has no note (see blocks.h) */
    KIND_POOLED,      /* a device address in a pool; its bytes are the pool's place in the list */
    KIND_ARRAY,
    KIND_MIPMAP,
    KIND_EXTERNAL,
    KIND_MODULE,
    KIND_LIBRARY,
    KIND_CONTEXT,
    KIND_RECORD,  /* physical memory, by a number of ours */
    KIND_HANDLE,  /* a handle of the record that is its owner */
    KIND_MAPPING, /* addresses, or a multicast binding, that hold the record that is its owner */
    KIND_TILE,    /* a part of the array that is its owner; its bytes are the record's number */
    KIND_GRAPH,   /* an executable graph with allocation nodes */
};

struct allocation {
    uint64_t key; /* only allocation_end tells it, and the kind */
    enum kind kind;
    uint64_t bytes;
    uint64_t owner; /* the context it ends with, or what the kind says */
    int device;
};

/* Joining says whether the caller is the first holder; leaving, whether it was the last. */
enum standing { STANDING_NONE, STANDING_SHARED, STANDING_ALONE };

/*
 * One more holder. The first one's values are kept. STANDING_NONE: no memory to remember it.
 */
enum standing allocation_join(enum kind kind, uint64_t key, uint64_t bytes, int device,
                              uint64_t owner);

/* One holder less, and what it is or was. STANDING_NONE: it is not known. */
enum standing allocation_leave(enum kind kind, uint64_t key, struct allocation *allocation);

/* Tells what it is; false when it is not known. */
bool allocation_find(enum kind kind, uint64_t key, struct allocation *allocation);

/* Adds to what is charged for it, or begins with that. */
bool allocation_grow(enum kind kind, uint64_t key, uint64_t bytes, int device, uint64_t owner);

/* Forgets everything that ends with the owner, a context or an array; `ended` is told of each. */
void allocation_end(uint64_t owner, void (*ended)(const struct allocation *allocation));
