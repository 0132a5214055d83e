/*
 * Threads that join and leave the same few blocks and handles: nothing may be lost, and no two of
 * them may both be first or last. Built with the shim's own sources, under a sanitizer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.h"
#include "blocks.h"

enum { THREADS = 4, ROUNDS = 20000, PLACES = 24, HANDLES = 4096 };

/* The rest of the shim is not here. */
_Thread_local struct thread thread;
uint8_t gate_is_open;
enum gate gate_try(void)
{
    return GATE_OPEN;
}

/* What is charged for blocks and for handles, by all threads. */
static int64_t charged;

static uint64_t place_of(unsigned number)
{
    return ((uint64_t)0x7f << 40) + number * (uint64_t)BLOCK_BYTES;
}

static void join_block(unsigned number)
{
    uint64_t *note = block_note_made(place_of(number));
    const uint64_t fresh = note_of(1, 3) + ((uint64_t)1 << NOTE_BLOCKS_SHIFT);
    if (block_join(note, fresh))
        __atomic_fetch_add(&charged, BLOCK_BYTES, __ATOMIC_RELAXED);
}

static void leave_block(unsigned number)
{
    const uint64_t left = block_leave(block_note(place_of(number)));
    if (left == 0 || note_device(left) != 1)
        abort();
    if (note_is_last(left))
        __atomic_fetch_sub(&charged, (int64_t)note_bytes(left), __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
    unsigned state = (unsigned)(size_t)argument;
    unsigned held[PLACES] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        state = state * 1664525u + 1013904223u;
        const unsigned place = (state >> 8) % PLACES;
        if (held[place] > 0 && (state >> 16) % 2) {
            leave_block(place);
            held[place]--;
        } else {
            join_block(place);
            held[place]++;
        }
        /* Handles of one's own, many enough for the table to grow. */
        const uint64_t handle = (uint64_t)(size_t)argument << 32 | round % HANDLES;
        struct allocation entry;
        if (round < HANDLES)
            allocation_join(KIND_ARRAY, handle, handle, 2, (size_t)argument);
        else if (round < 2 * HANDLES &&
                 (allocation_leave(KIND_ARRAY, handle, &entry) != STANDING_ALONE ||
                  entry.bytes != handle || entry.device != 2))
            abort();
        /* And one that all of them hold. */
        allocation_join(KIND_RECORD, 7, 100, 0, 0);
        if (allocation_leave(KIND_RECORD, 7, &entry) == STANDING_NONE || entry.bytes != 100)
            abort();
    }
    for (unsigned place = 0; place < PLACES; place++)
        while (held[place]-- > 0)
            leave_block(place);
    return NULL;
}

static void ended_block(int device, uint64_t bytes)
{
    (void)device;
    __atomic_fetch_sub(&charged, (int64_t)bytes, __ATOMIC_RELAXED);
}

static unsigned ended_count;

static void ended(const struct allocation *allocation)
{
    ended_count += allocation->kind == KIND_MODULE;
}

/* What an owner has ends with it, whatever lies between; a forked child has nothing of it. */
static void end_with_owner(void)
{
    const unsigned owner = block_owner(77);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t *note = block_note_made(place_of(1000 + i));
        block_join(note,
                   note_of(0, i % 2 ? owner : owner + 1) + ((uint64_t)1 << NOTE_BLOCKS_SHIFT));
        charged += BLOCK_BYTES;
    }
    for (uint64_t i = 0; i < 5000; i++)
        allocation_join(KIND_MODULE, i, 1, 0, i % 2 ? 77 : 78);
    struct allocation entry;
    if (fork() == 0)
        _exit(allocation_find(KIND_MODULE, 1, &entry) || *block_note(place_of(1001)) != 0);
    int status = 1;
    wait(&status);
    if (status != 0)
        abort();
    blocks_end(77, ended_block);
    allocation_end(77, ended);
    if (charged != 50 * (int64_t)BLOCK_BYTES || ended_count != 2500)
        abort();
    if (allocation_find(KIND_MODULE, 1, &entry) || !allocation_find(KIND_MODULE, 2, &entry))
        abort();
}

int main(void)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (charged != 0)
        abort();
    end_with_owner();
    puts("balanced");
    return 0;
}
