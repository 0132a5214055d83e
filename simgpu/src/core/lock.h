/*
 * Locks that survive their owner.
 *
 * Whoever holds a lock writes down what a word was before changing it (sim_set). A step ends with
 * sim_commit, which forgets the notes. If the owner dies in between, the next one who wants the
 * lock finds it dead, takes the lock over, and restores the words in reverse order, so that a step
 * happened wholly or not at all. No lock is ever taken while another one is held.
 *
 * Only the compiler must be kept from moving stores: a process dies between two instructions, and
 * the kernel's own locks order what it wrote before the death is seen.
 *
 * Known limit: a process that is stopped (SIGSTOP, a debugger) inside a lock is alive; others wait
 * until it goes on.
 */
#pragma once

#include "view.h"

/* A device (or the list of processes) while it is locked by us. */
struct sim_held {
    struct sim_view *view;
    struct sim_state *state;
    struct sim_lock *lock;
    struct sim_device *device; /* NULL: the lock of the process slots */
    unsigned index;
    unsigned number; /* ours */
};

/* Locks a device as whoever we are. False: more observers than the node has numbers for. */
bool sim_hold(struct sim_view *view, unsigned device, struct sim_held *held);

/* Locks a device as a process of the node, which we become if need be. False: the node is full. */
bool sim_hold_as_process(struct sim_view *view, unsigned device, struct sim_held *held);

/* Locks the process slots. */
bool sim_hold_slots(struct sim_view *view, struct sim_held *held);

/* The same with a ticket that is not in use yet: for who is about to become a process. */
void sim_hold_with(struct sim_view *view, unsigned device, uint32_t ticket, struct sim_held *held);
void sim_hold_slots_with(struct sim_view *view, uint32_t ticket, struct sim_held *held);

/* Ends the step and unlocks. */
void sim_unhold(struct sim_held *held);

static inline void sim_note(struct sim_held *held, void *word)
{
    struct sim_lock *lock = held->lock;
    uint64_t offset = (uint64_t)((char *)word - (char *)held->state) & ~UINT64_C(7);
    uint32_t count = lock->undo_count;

    lock->undo[count].offset = offset;
    lock->undo[count].value =
        __atomic_load_n((uint64_t *)((char *)held->state + offset), __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&lock->undo_count, count + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void sim_set(struct sim_held *held, uint64_t *word, uint64_t value)
{
    sim_note(held, word);
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void sim_set_half(struct sim_held *held, uint32_t *word, uint32_t value)
{
    sim_note(held, word);
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* The step is done: nothing of it will be undone. */
static inline void sim_commit(struct sim_held *held)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&held->lock->undo_count, 0, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline struct sim_usage *sim_usage_of(struct sim_held *held, unsigned slot)
{
    return &held->state->processes[slot].usages[held->index];
}

static inline struct sim_history *sim_history_of(struct sim_held *held, unsigned slot)
{
    return &held->state->histories[slot][held->index];
}
