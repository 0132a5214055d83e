/* Memory that is booked in chunks and handed out in smaller pieces. */
#include "heap.h"

#include "core.h"
#include "memory.h"

enum { HEAP_UNIT_SHIFT = 9 };

void heap_init(struct heap *heap, unsigned device, uint64_t chunk_bytes)
{
    *heap = (struct heap){
        .device = device,
        .chunk_bytes = chunk_bytes,
        .most_bytes = UINT64_MAX,
    };
    row_init(&heap->row, HEAP_UNIT_SHIFT);
}

static bool book(const struct heap *heap, uint64_t bytes)
{
    return heap->is_free || sim_reserve(heap->device, bytes) == 0;
}

static void unbook(const struct heap *heap, uint64_t bytes)
{
    if (!heap->is_free)
        sim_release(heap->device, bytes);
}

static bool grow(struct heap *heap, uint64_t bytes)
{
    if (bytes > heap->most_bytes - heap->booked_bytes || !book(heap, bytes))
        return false;
    struct piece *chunk = space_take(bytes);
    struct piece *first = chunk != NULL ? row_add(&heap->row, chunk->start, bytes, chunk) : NULL;
    if (first == NULL) {
        if (chunk != NULL)
            space_give(chunk);
        unbook(heap, bytes);
        return false;
    }
    chunk->use = PIECE_CHUNK;
    chunk->heap = heap;
    chunk->detail = first;
    chunk->next = heap->chunks;
    if (chunk->next != NULL)
        chunk->next->previous = chunk;
    heap->chunks = chunk;
    heap->booked_bytes += bytes;
    if (heap->booked_bytes > heap->booked_high)
        heap->booked_high = heap->booked_bytes;
    return true;
}

static void shrink(struct heap *heap, struct piece *chunk)
{
    row_remove(&heap->row, chunk->detail);
    if (chunk->next != NULL)
        chunk->next->previous = chunk->previous;
    if (chunk->previous != NULL)
        chunk->previous->next = chunk->next;
    else
        heap->chunks = chunk->next;
    heap->booked_bytes -= chunk->bytes;
    unbook(heap, chunk->bytes);
    if (chunk->is_exported)
        exported_end(chunk);
    /* The program writes to the host's memory without asking. */
    if (heap->is_free)
        space_touch(chunk->start, chunk->bytes);
    space_give(chunk);
}

struct piece *heap_take(struct heap *heap, uint64_t bytes)
{
    struct piece *piece = row_take(&heap->row, bytes);
    if (piece == NULL) {
        const uint64_t least = space_round(bytes);
        const uint64_t chunks = (least + heap->chunk_bytes - 1) / heap->chunk_bytes;
        /* Near the end of the device's memory a shorter chunk may still fit. */
        if (!grow(heap, chunks * heap->chunk_bytes) && !grow(heap, least))
            return NULL;
        piece = row_take(&heap->row, bytes);
    }
    if (piece == NULL)
        return NULL;
    if (!space_mark(piece)) {
        row_give(&heap->row, piece);
        return NULL;
    }
    piece->heap = heap;
    heap->used_bytes += piece->bytes;
    if (heap->used_bytes > heap->used_high)
        heap->used_high = heap->used_bytes;
    return piece;
}

void heap_give(struct heap *heap, struct piece *piece)
{
    heap->used_bytes -= piece->bytes;
    space_unmark(piece);
    struct piece *whole = row_give(&heap->row, piece);
    if (!heap->keeps_empty && row_is_region(whole))
        shrink(heap, whole->region);
}

void heap_trim(struct heap *heap, uint64_t keep_bytes)
{
    struct piece *next = NULL;
    for (struct piece *chunk = heap->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (row_is_region(chunk->detail) && heap->booked_bytes - chunk->bytes >= keep_bytes)
            shrink(heap, chunk);
    }
}
