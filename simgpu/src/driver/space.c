/* The device addresses of this process, and which piece an address belongs to. */
#define _GNU_SOURCE
#include "space.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    UNIT_SHIFT = 9, /* the finest that blocks are divided */
    UNITS = BLOCK_BYTES >> UNIT_SHIFT,
    /* How much more addresses than memory: programs reserve ranges that they fill in part. */
    ADDRESSES_PER_BYTE = 16,
};

/* The pieces that start inside a block. */
struct block_map {
    unsigned count;
    uint64_t starts[UNITS / 64];
    struct piece *at[UNITS];
};

struct block {
    struct piece *covering; /* the piece that its first byte belongs to */
    struct block_map *map;  /* NULL while no piece starts further inside */
    uint8_t written;
};

static struct {
    uint64_t start;
    uint64_t bytes; /* a power of two */
    uint64_t next;  /* null mode's place in it */
    struct block *blocks;
    struct piece *first;
    struct row row;
    struct block_map *spare_map; /* so that one small allocation by itself needs no malloc */
} space;

static uint64_t block_count(void)
{
    return space.bytes >> BLOCK_SHIFT;
}

static void *map_anew(void *where, uint64_t bytes, int flags)
{
    void *memory = mmap(where, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (memory != MAP_FAILED) {
        madvise(memory, bytes, MADV_DONTFORK);
        madvise(memory, bytes, MADV_DONTDUMP);
    }
    return memory;
}

/* Reserves a range whose length is a power of two and whose start is the start of a block. */
static bool reserve(uint64_t bytes)
{
    char *memory = map_anew(NULL, bytes + BLOCK_BYTES, 0);
    if (memory == MAP_FAILED)
        return false;
    const uint64_t before = -(uint64_t)(uintptr_t)memory & (BLOCK_BYTES - 1);
    if (before > 0)
        munmap(memory, before);
    munmap(memory + before + bytes, BLOCK_BYTES - before);
    space.start = (uint64_t)(uintptr_t)memory + before;
    space.bytes = bytes;
    return true;
}

bool space_open(uint64_t device_bytes)
{
    uint64_t bytes = UINT64_C(1) << 36;
    while (bytes < device_bytes * ADDRESSES_PER_BYTE)
        bytes *= 2;
    /* A limit on address space leaves less; enough for one device's memory must be there. */
    while (!reserve(bytes)) {
        bytes /= 2;
        if (bytes < UINT64_C(1) << 32)
            return false;
    }
    void *blocks = map_anew(NULL, block_count() * sizeof(struct block), 0);
    row_init(&space.row, BLOCK_SHIFT);
    if (blocks != MAP_FAILED)
        space.first = row_add(&space.row, space.start, space.bytes, NULL);
    if (blocks == MAP_FAILED || space.first == NULL) {
        space_forget();
        return false;
    }
    space.blocks = blocks;
    return true;
}

void space_forget(void)
{
    /* In a forked child the addresses are unmapped already; unmapping is harmless then. */
    if (space.bytes > 0)
        munmap((void *)(uintptr_t)space.start, space.bytes);
    if (space.blocks != NULL)
        munmap(space.blocks, block_count() * sizeof(struct block));
    memset(&space, 0, sizeof space);
    row_forget_pieces();
}

bool space_covers(uint64_t address)
{
    return address - space.start < space.bytes;
}

uint64_t space_next(uint64_t bytes)
{
    const uint64_t place = __atomic_fetch_add(&space.next, bytes, __ATOMIC_RELAXED);
    return space.start + (place & (space.bytes - 1));
}

struct piece *space_take(uint64_t bytes)
{
    return row_take(&space.row, bytes);
}

struct piece *space_take_at(uint64_t start, uint64_t bytes)
{
    struct piece *near = space.first;
    while (near != NULL && near->start + near->bytes <= start)
        near = near->after;
    return row_take_at(&space.row, near, start, bytes);
}

static struct block *block_at(uint64_t address)
{
    return &space.blocks[(address - space.start) >> BLOCK_SHIFT];
}

static unsigned unit_at(uint64_t address)
{
    return (unsigned)(address >> UNIT_SHIFT) % UNITS;
}

bool space_renew(uint64_t start, uint64_t bytes)
{
    for (uint64_t offset = 0; offset < bytes; offset += BLOCK_BYTES)
        __atomic_store_n(&block_at(start + offset)->written, 0, __ATOMIC_RELAXED);
    return map_anew((void *)(uintptr_t)start, bytes, MAP_FIXED) != MAP_FAILED;
}

/* Gives the host's memory behind a piece back, with no system call if there cannot be any. */
static void drop_written(const struct piece *piece)
{
    bool written = false;
    for (uint64_t offset = 0; offset < piece->bytes; offset += BLOCK_BYTES) {
        struct block *block = block_at(piece->start + offset);
        written |= __atomic_exchange_n(&block->written, 0, __ATOMIC_RELAXED) != 0;
    }
    if (written)
        madvise((void *)(uintptr_t)piece->start, piece->bytes, MADV_DONTNEED);
}

void space_give(struct piece *piece)
{
    drop_written(piece);
    row_give(&space.row, piece);
}

static struct block_map *new_map(void)
{
    struct block_map *map = space.spare_map;
    space.spare_map = NULL;
    if (map == NULL)
        map = malloc(sizeof *map);
    if (map != NULL) {
        map->count = 0;
        memset(map->starts, 0, sizeof map->starts);
    }
    return map;
}

static void drop_map(struct block_map *map)
{
    if (space.spare_map == NULL)
        space.spare_map = map;
    else
        free(map);
}

/* The first block whose first byte lies in the piece, or behind it. */
static uint64_t first_boundary(const struct piece *piece)
{
    return space_round(piece->start - space.start) + space.start;
}

bool space_mark(struct piece *piece)
{
    if (first_boundary(piece) != piece->start) {
        struct block *block = block_at(piece->start);
        const unsigned unit = unit_at(piece->start - space.start);
        if (block->map == NULL && (block->map = new_map()) == NULL)
            return false;
        block->map->count++;
        block->map->starts[unit / 64] |= UINT64_C(1) << unit % 64;
        block->map->at[unit] = piece;
    }
    for (uint64_t at = first_boundary(piece); at < piece->start + piece->bytes; at += BLOCK_BYTES)
        block_at(at)->covering = piece;
    return true;
}

void space_unmark(struct piece *piece)
{
    if (first_boundary(piece) != piece->start) {
        struct block *block = block_at(piece->start);
        const unsigned unit = unit_at(piece->start - space.start);
        block->map->starts[unit / 64] &= ~(UINT64_C(1) << unit % 64);
        if (--block->map->count == 0) {
            drop_map(block->map);
            block->map = NULL;
        }
    }
    for (uint64_t at = first_boundary(piece); at < piece->start + piece->bytes; at += BLOCK_BYTES)
        block_at(at)->covering = NULL;
}

/* The last piece that starts in the block at or before the unit. */
static struct piece *started_before(const struct block_map *map, unsigned unit)
{
    uint64_t mask = UINT64_MAX >> (63 - unit % 64);
    for (unsigned word = unit / 64 + 1; word-- > 0; mask = UINT64_MAX) {
        const uint64_t starts = map->starts[word] & mask;
        if (starts != 0)
            return map->at[word * 64 + 63 - (unsigned)__builtin_clzll(starts)];
    }
    return NULL;
}

struct piece *space_find(uint64_t address)
{
    if (!space_covers(address))
        return NULL;
    const struct block *block = block_at(address);
    struct piece *piece = NULL;
    if (block->map != NULL)
        piece = started_before(block->map, unit_at(address - space.start));
    if (piece == NULL)
        piece = block->covering;
    return piece != NULL && address - piece->start < piece->bytes ? piece : NULL;
}

void space_touch(uint64_t address, uint64_t bytes)
{
    if (!space_covers(address) || bytes == 0)
        return;
    for (struct block *block = block_at(address), *last = block_at(address + bytes - 1);
         block <= last; block++)
        __atomic_store_n(&block->written, 1, __ATOMIC_RELAXED);
}
