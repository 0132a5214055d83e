/*
 * The device addresses of this process: one reserved range of host memory.
 *
 * A device address is an address of the process, so a copy is a copy. The range is reserved whole
 * and costs nothing until it is written to; what was written is given back when its piece ends.
 * Address space is far more plentiful than device memory, which is booked with the node apart from
 * this. Callers hold memory's lock, except where it says otherwise.
 */
#pragma once

#include "row.h"

#include <stddef.h>

/* The unit of whole allocations, as on hardware; smaller ones share a block. */
enum { BLOCK_SHIFT = 21, BLOCK_BYTES = 1 << BLOCK_SHIFT };

static inline uint64_t space_round(uint64_t bytes)
{
    return (bytes + BLOCK_BYTES - 1) & ~(uint64_t)(BLOCK_BYTES - 1);
}

/* Reserves addresses for devices with so much memory in all; false when there are none. */
bool space_open(uint64_t device_bytes);

/* Gives all addresses back and forgets every piece: a forked child has none of them. */
void space_forget(void);

/* Whole blocks of addresses, or NULL. `space_take_at` wants them at one place. */
struct piece *space_take(uint64_t bytes);
struct piece *space_take_at(uint64_t start, uint64_t bytes);
void space_give(struct piece *piece);

/* Makes the used piece found by addresses inside it, and no longer. */
bool space_mark(struct piece *piece);
void space_unmark(struct piece *piece);

/* The marked piece that an address lies in, or NULL; any address may be asked about. */
struct piece *space_find(uint64_t address);

/* Notes that bytes were written, so that they are given back with the piece. Needs no lock. */
void space_touch(uint64_t address, uint64_t bytes);

/* Replaces what stands at whole blocks by fresh, empty memory; drops files mapped there. */
bool space_renew(uint64_t start, uint64_t bytes);

/* Null mode: the next so many bytes of the range, round and round. Needs no lock. */
uint64_t space_next(uint64_t bytes);

/* Whether the address is in the range at all. Needs no lock. */
bool space_covers(uint64_t address);
