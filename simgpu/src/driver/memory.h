/*
 * Device memory of the process: which piece an address belongs to, and whose it is.
 *
 * One lock guards all pieces, rows and heaps. It is held for the few steps of a take or a give and
 * never while waiting for streams.
 */
#pragma once

#include "driver.h"
#include "heap.h"

/* What ends with a context. */
struct memory_set {
    struct heap small;    /* allocations below SMALL_BYTES */
    struct piece *pieces; /* everything that the context owns, linked by `next` */
};

enum { SMALL_BYTES = 1 << 20 };

void memory_lock(void);
void memory_unlock(void);

/* Called by the context's owner, as streams_open and streams_close. */
CUresult memory_open(struct context *context);
void memory_close(struct context *context);

/* Device memory, charged as hardware charges it. The piece is marked and ends with the context. */
CUresult memory_take(struct context *context, size_t bytes, struct piece **piece);

/* Addresses without memory behind them: whole blocks, not booked. They end with the context, and
 * `detail` with them, as their use ends it. */
CUresult memory_take_addresses(struct context *context, size_t bytes, enum piece_use use,
                               void *detail, struct piece **piece);

/* Books a piece's bytes with its device by themselves, and gives them back. Lock held. */
CUresult memory_book(struct piece *piece, uint64_t bytes);
void memory_unbook(struct piece *piece);

/* Ends a piece of any use, with everything that its use keeps. Lock held. */
void memory_drop(struct piece *piece);

/* Files a piece under its context, from which memory_drop takes it. Lock held. */
void memory_file(struct context *context, struct piece *piece);

/* A number that no other allocation of the process has had. Lock held. */
uint64_t memory_next_id(void);

/* As memory_holds, but what a graph has reserved counts whether or not the graph has run. */
bool memory_spans(CUdeviceptr address, size_t bytes);

/* A copy of what is known of the piece at an address; false when there is none. */
bool memory_look(CUdeviceptr address, struct piece *piece);

/* Null mode knows no pieces: any device address is inside one that is the whole range. */
bool memory_look_null(CUdeviceptr address, struct piece *piece);

/* Frees what a program freed: `allowed` are the uses, as bits, that the call may free. */
CUresult memory_free_address(CUdeviceptr address, unsigned allowed);

void memory_forget(void);

/* --- the parts that keep something beside a piece; lock held ------------------------------- */

void managed_end(struct piece *piece);
void pooled_end(struct piece *piece);
void exported_end(struct piece *region);
void reserved_end(struct piece *piece);

/* Whether something is mapped at all of a range inside a reservation, with access to it. */
bool reserved_holds(const struct piece *piece, uint64_t address, uint64_t bytes);

/* Makes the copy of a reservation's piece describe the mapping at an address; false: none there. */
bool reserved_narrow(struct piece *copy, uint64_t address);

/* External memory of a closing context stops being a handle; its addresses go with the context. */
void externals_close(const struct context *context);
void externals_forget(void);

/* Whether a range lies inside one piece of pinned or registered host memory. Takes no lock. */
bool host_holds(uint64_t address, uint64_t bytes);
