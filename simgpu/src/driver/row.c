/* Dividing addresses into pieces, in constant time: free pieces are kept by size class. */
#include "row.h"

#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 256,     /* pieces that are asked from malloc at once */
    CLASS_LOOKS = 8, /* pieces of the exact class that are tried before the next larger one */
};

static struct piece *spare; /* linked by `next` */

static struct piece *new_piece(void)
{
    if (spare == NULL) {
        struct piece *batch = calloc(BATCH, sizeof *batch);
        if (batch == NULL)
            return NULL;
        for (unsigned number = 0; number + 1 < BATCH; number++)
            batch[number].next = &batch[number + 1];
        spare = batch;
    }
    struct piece *piece = spare;
    spare = piece->next;
    memset(piece, 0, sizeof *piece);
    return piece;
}

static void drop_piece(struct piece *piece)
{
    piece->next = spare;
    spare = piece;
}

void row_forget_pieces(void)
{
    spare = NULL;
}

void row_init(struct row *row, unsigned unit_shift)
{
    memset(row, 0, sizeof *row);
    row->unit_shift = unit_shift;
}

/* Four classes for every doubling: all pieces of a class are less than a quarter apart. */
static unsigned class_of(uint64_t units)
{
    if (units < 4)
        return (unsigned)units;
    const unsigned log2 = 63 - (unsigned)__builtin_clzll(units);
    return log2 * 4 + (unsigned)(units >> (log2 - 2) & 3) - 4;
}

static void link_free(struct row *row, struct piece *piece)
{
    const unsigned class = class_of(piece->bytes >> row->unit_shift);
    piece->use = PIECE_FREE;
    piece->previous = NULL;
    piece->next = row->classes[class];
    if (piece->next != NULL)
        piece->next->previous = piece;
    row->classes[class] = piece;
    row->occupied[class / 64] |= UINT64_C(1) << class % 64;
}

static void unlink_free(struct row *row, struct piece *piece)
{
    const unsigned class = class_of(piece->bytes >> row->unit_shift);
    if (piece->next != NULL)
        piece->next->previous = piece->previous;
    if (piece->previous != NULL)
        piece->previous->next = piece->next;
    else
        row->classes[class] = piece->next;
    if (row->classes[class] == NULL)
        row->occupied[class / 64] &= ~(UINT64_C(1) << class % 64);
    piece->next = piece->previous = NULL;
}

struct piece *row_add(struct row *row, uint64_t start, uint64_t bytes, struct piece *region)
{
    struct piece *piece = new_piece();
    if (piece != NULL) {
        piece->start = start;
        piece->bytes = bytes;
        piece->region = region;
        link_free(row, piece);
    }
    return piece;
}

void row_remove(struct row *row, struct piece *piece)
{
    unlink_free(row, piece);
    drop_piece(piece);
}

/* Cuts what lies behind the first `bytes` off a used piece and makes it free. */
static bool cut_behind(struct row *row, struct piece *piece, uint64_t bytes)
{
    if (piece->bytes == bytes)
        return true;
    struct piece *rest = new_piece();
    if (rest == NULL)
        return false;
    rest->start = piece->start + bytes;
    rest->bytes = piece->bytes - bytes;
    rest->before = piece;
    rest->after = piece->after;
    rest->region = piece->region;
    if (rest->after != NULL)
        rest->after->before = rest;
    piece->after = rest;
    piece->bytes = bytes;
    link_free(row, rest);
    return true;
}

static struct piece *use(struct row *row, struct piece *piece, uint64_t bytes)
{
    unlink_free(row, piece);
    if (!cut_behind(row, piece, bytes)) {
        link_free(row, piece);
        return NULL;
    }
    /* Nothing of what it was used for before. */
    *piece = (struct piece){
        .start = piece->start,
        .bytes = piece->bytes,
        .before = piece->before,
        .after = piece->after,
        .region = piece->region,
        .use = PIECE_DEVICE,
    };
    return piece;
}

static struct piece *find(const struct row *row, uint64_t bytes)
{
    unsigned class = class_of(bytes >> row->unit_shift);
    unsigned looks = CLASS_LOOKS;
    for (struct piece *piece = row->classes[class]; piece != NULL && looks > 0; looks--) {
        if (piece->bytes >= bytes)
            return piece;
        piece = piece->next;
    }
    /* Every piece of a higher class is long enough. */
    class++;
    uint64_t mask = UINT64_MAX << class % 64;
    for (unsigned word = class / 64; word < ROW_CLASSES / 64; word++, mask = UINT64_MAX) {
        const uint64_t found = row->occupied[word] & mask;
        if (found != 0)
            return row->classes[word * 64 + (unsigned)__builtin_ctzll(found)];
    }
    return NULL;
}

struct piece *row_take(struct row *row, uint64_t bytes)
{
    const uint64_t unit = UINT64_C(1) << row->unit_shift;
    if (bytes == 0 || bytes > UINT64_MAX - unit)
        return NULL;
    bytes = (bytes + unit - 1) & ~(unit - 1);
    struct piece *piece = find(row, bytes);
    return piece != NULL ? use(row, piece, bytes) : NULL;
}

struct piece *row_take_at(struct row *row, struct piece *near, uint64_t start, uint64_t bytes)
{
    if (near == NULL || near->use != PIECE_FREE || start < near->start ||
        bytes > near->bytes - (start - near->start))
        return NULL;
    if (start == near->start)
        return use(row, near, bytes);
    unlink_free(row, near);
    if (!cut_behind(row, near, start - near->start)) {
        link_free(row, near);
        return NULL;
    }
    struct piece *behind = near->after;
    link_free(row, near);
    struct piece *piece = use(row, behind, bytes);
    if (piece == NULL)
        row_give(row, behind);
    return piece;
}

/* Appends the neighbour behind a piece to it. */
static void swallow(struct piece *piece, struct piece *behind)
{
    piece->bytes += behind->bytes;
    piece->after = behind->after;
    if (piece->after != NULL)
        piece->after->before = piece;
    drop_piece(behind);
}

struct piece *row_give(struct row *row, struct piece *piece)
{
    if (piece->use == PIECE_FREE)
        unlink_free(row, piece);
    if (piece->after != NULL && piece->after->use == PIECE_FREE) {
        unlink_free(row, piece->after);
        swallow(piece, piece->after);
    }
    if (piece->before != NULL && piece->before->use == PIECE_FREE) {
        struct piece *before = piece->before;
        unlink_free(row, before);
        swallow(before, piece);
        piece = before;
    }
    link_free(row, piece);
    return piece;
}
