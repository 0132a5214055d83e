/*
 * Dividing addresses: a row of pieces, free ones and used ones, without holes between them.
 *
 * Taking and giving back cost the same however many pieces there are. A row knows nothing of what
 * its addresses stand for: the address space of the process is a row of 2 MiB units, each context
 * and each pool has a row of 512-byte units over the blocks it owns. Callers hold memory's lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct context;
struct heap;

/* What a piece is used for; PIECE_FREE while it is nobody's. */
enum piece_use {
    PIECE_FREE,
    PIECE_CHUNK,    /* divided further by a heap */
    PIECE_DEVICE,   /* cuMemAlloc, arrays, globals of modules */
    PIECE_POOLED,   /* cuMemAllocAsync */
    PIECE_MANAGED,  /* cuMemAllocManaged */
    PIECE_GRAPH,    /* a graph's allocation, booked while the graph holds it */
    PIECE_RESERVED, /* cuMemAddressReserve: what is mapped there is virtual.c's */
    PIECE_IMPORTED, /* another process's memory, or an external one */
};

struct piece {
    uint64_t start;
    uint64_t bytes;       /* as the row divides: a multiple of its unit */
    struct piece *before; /* its neighbours by address; NULL at the rim of a region */
    struct piece *after;
    struct piece *next; /* free: others of its size; used: others of its context */
    struct piece *previous;
    enum piece_use use;
    bool is_exported;        /* backed by a file that other processes map */
    bool synchronous;        /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool is_leaving;         /* its free is queued on a stream */
    uint64_t booked_bytes;   /* charged to the device by itself, not as part of a heap's chunk */
    uint64_t wanted_bytes;   /* what the program asked for */
    uint64_t buffer_id;      /* unique in the process */
    unsigned device;         /* the program's ordinal */
    struct context *context; /* that it ends with; NULL when it outlives contexts */
    struct heap *heap;       /* that it was cut from; NULL when it is whole units of the space */
    struct piece *region;    /* row_add's owner of the region it lies in */
    void *detail;            /* what its use keeps beside it */
};

enum { ROW_CLASSES = 256 };

struct row {
    unsigned unit_shift;
    uint64_t occupied[ROW_CLASSES / 64]; /* classes that have a free piece */
    struct piece *classes[ROW_CLASSES];
};

void row_init(struct row *row, unsigned unit_shift);

/* Gives the row a new region, free; answers its piece, or NULL without memory for one. Every piece
 * that is cut from it knows `region`, what the region itself is for somebody else. */
struct piece *row_add(struct row *row, uint64_t start, uint64_t bytes, struct piece *region);

/* Takes a whole free region out of the row; the piece is gone after that. */
void row_remove(struct row *row, struct piece *piece);

/* A used piece of at least these bytes, or NULL when no free piece is that long. */
struct piece *row_take(struct row *row, uint64_t bytes);

/* As row_take, at this very address; NULL unless it is free. `near` is the free piece there. */
struct piece *row_take_at(struct row *row, struct piece *near, uint64_t start, uint64_t bytes);

/* Makes a piece free and joins it with its free neighbours; answers the piece it became. */
struct piece *row_give(struct row *row, struct piece *piece);

/* Whether a free piece is a whole region: nothing of it is used. */
static inline bool row_is_region(const struct piece *piece)
{
    return piece->use == PIECE_FREE && piece->before == NULL && piece->after == NULL;
}

/* Forgets all pieces of all rows, as a forked child does. */
void row_forget_pieces(void);
