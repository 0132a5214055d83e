/*
 * Which blocks of device memory this process holds: a note for each, found by its address.
 *
 * The driver takes memory from a device in blocks of 2 MiB, and addresses come in the same. Notes
 * lie in pages by block number, so finding one is two loads, and changing one is one atomic
 * exchange, whatever is alive and however many threads there are. In a forked child all are empty.
 */
#pragma once

#include "hook.h"

enum { BLOCK_SHIFT = 21, BLOCK_BYTES = 1 << BLOCK_SHIFT };

enum {
    NOTE_HOLDERS = 0xffff, /* allocations in the block; no note: none */
    NOTE_DEVICE_SHIFT = 16,
    NOTE_OWNER_SHIFT = 22,
    NOTE_BLOCKS_SHIFT = 34, /* how many blocks the allocation has that begins here */
    NOTE_DEVICES = 1 << (NOTE_OWNER_SHIFT - NOTE_DEVICE_SHIFT),
    NOTE_OWNERS = 1 << (NOTE_BLOCKS_SHIFT - NOTE_OWNER_SHIFT),
};

/* 48 bits of addresses: 2^14 pages of notes for 16 GiB each. */
enum { PAGE_NOTES = 1 << 13, PAGES = 1 << (48 - BLOCK_SHIFT - 13) };

extern uint64_t *block_pages[PAGES] INTERNAL;

/* Where the note of an address is; NULL when no page for it has been made. */
static inline uint64_t *block_note(uint64_t address)
{
    const uint64_t number = address >> BLOCK_SHIFT;
    const uint64_t page = number / PAGE_NOTES;
    if (UNLIKELY(page >= PAGES))
        return NULL;
    uint64_t *notes = __atomic_load_n(&block_pages[page], __ATOMIC_ACQUIRE);
    return UNLIKELY(notes == NULL) ? NULL : notes + number % PAGE_NOTES;
}

/* The same, with a page made for it; NULL without memory, or for addresses beyond 48 bits. */
uint64_t *block_note_made(uint64_t address);

/* What a note of one holder says, apart from the number of blocks. */
static inline uint64_t note_of(int device, unsigned owner)
{
    return (uint64_t)owner << NOTE_OWNER_SHIFT | (uint64_t)device << NOTE_DEVICE_SHIFT | 1;
}

static inline uint64_t note_bytes(uint64_t note)
{
    return note >> NOTE_BLOCKS_SHIFT << BLOCK_SHIFT;
}

static inline int note_device(uint64_t note)
{
    return (int)(note >> NOTE_DEVICE_SHIFT) & (NOTE_DEVICES - 1);
}

static inline bool note_is_last(uint64_t note)
{
    return (note & NOTE_HOLDERS) == 1;
}

/* One more holder; true when it is the first, whose note then stands. */
bool block_join_slowly(uint64_t *note, uint64_t fresh);

static inline bool block_join(uint64_t *note, uint64_t fresh)
{
    uint64_t none = 0;
    return LIKELY(__atomic_compare_exchange_n(note, &none, fresh, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED)) ||
           block_join_slowly(note, fresh);
}

/* One holder less; answers the note as it was, or 0 when there was none. */
uint64_t block_leave_slowly(uint64_t *note);

static inline uint64_t block_leave(uint64_t *note)
{
    uint64_t present = __atomic_load_n(note, __ATOMIC_RELAXED);
    if (LIKELY(note_is_last(present)) &&
        LIKELY(__atomic_compare_exchange_n(note, &present, 0, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED)))
        return present;
    return block_leave_slowly(note);
}

/* --- owners: the contexts that blocks end with --------------------------------------------- */

/* A small number for an owner's key, the same until blocks_end; 0 when there are too many. */
unsigned block_owner(uint64_t key);

/* Empties the notes of an owner; `ended` is told the device and bytes of each. */
void blocks_end(uint64_t key, void (*ended)(int device, uint64_t bytes));
