/* What a copy does: checked and resolved to addresses when it is asked for, done when it is due. */
#include "copy.h"

#include <string.h>

#include "array.h"
#include "memory.h"

/* A block of bytes in three dimensions. */
struct block {
    size_t width;
    size_t height;
    size_t depth;
};

/* One end of a copy: where its first byte is, and how far apart rows and slices are. */
struct end {
    char *first;
    size_t row_step;
    size_t slice_step;
};

struct copy {
    struct end from;
    struct end to;
    struct block block;
};

/* One end as the parameters name it. */
struct named_end {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, lod;
    size_t pitch;
    size_t height;
};

/* Copies may go on while memory stays where it is. */
static pthread_rwlock_t moving = PTHREAD_RWLOCK_INITIALIZER;

void copies_pause(void)
{
    pthread_rwlock_wrlock(&moving);
}

void copies_resume(void)
{
    pthread_rwlock_unlock(&moving);
}

void copies_forget(void)
{
    moving = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

/* --- doing --------------------------------------------------------------------------------- */

static uint64_t address_of(const char *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

/* The bytes between the first and the last one of a block. */
static size_t span(const struct end *end, const struct block *block)
{
    return (block->depth - 1) * end->slice_step + (block->height - 1) * end->row_step +
           block->width;
}

/* Two ends whose rows, or slices, touch are longer rows. */
static void join_rows(struct copy *copy)
{
    struct block *block = &copy->block;
    if (block->width == copy->from.row_step && block->width == copy->to.row_step &&
        (block->depth == 1 || (block->width * block->height == copy->from.slice_step &&
                               block->width * block->height == copy->to.slice_step))) {
        block->width *= block->height * block->depth;
        block->height = block->depth = 1;
    }
}

static void copy_run(struct context *context, void *arguments)
{
    (void)context;
    struct copy copy = *(const struct copy *)arguments;
    join_rows(&copy);
    pthread_rwlock_rdlock(&moving);
    space_touch(address_of(copy.to.first), span(&copy.to, &copy.block));
    for (size_t z = 0; z < copy.block.depth; z++) {
        for (size_t y = 0; y < copy.block.height; y++)
            memmove(copy.to.first + z * copy.to.slice_step + y * copy.to.row_step,
                    copy.from.first + z * copy.from.slice_step + y * copy.from.row_step,
                    copy.block.width);
    }
    pthread_rwlock_unlock(&moving);
}

/* --- checking ------------------------------------------------------------------------------ */

static CUresult resolve_array(const struct named_end *named, const struct block *block,
                              struct end *end)
{
    struct array_place place;
    TRY(array_locate(named->array, &place));
    const size_t all = place.row_bytes * place.rows * place.slices;
    const bool flat = block->height == 1 && block->depth == 1 && named->y == 0 && named->z == 0;
    /* The calls with an offset count it through the whole array. */
    if (flat)
        REQUIRE(named->x <= all && block->width <= all - named->x);
    else
        REQUIRE(named->x <= place.row_bytes && block->width <= place.row_bytes - named->x &&
                named->y <= place.rows && block->height <= place.rows - named->y &&
                named->z <= place.slices && block->depth <= place.slices - named->z);
    end->row_step = place.row_bytes;
    end->slice_step = place.row_bytes * place.rows;
    end->first = place.base + named->z * end->slice_step + named->y * end->row_step + named->x;
    return CUDA_SUCCESS;
}

static CUresult resolve_linear(const struct named_end *named, const struct block *block,
                               struct end *end)
{
    const bool on_host = named->type == CU_MEMORYTYPE_HOST;
    const uint64_t base = on_host ? (uint64_t)(uintptr_t)named->host : named->device;
    size_t pitch = named->pitch;
    size_t rows = named->height;
    /* No address space is larger; sums of two cannot overflow then. */
    REQUIRE((named->x | named->y | named->z | pitch | rows | block->width | block->height |
             block->depth) >>
                48 ==
            0);
    /* What nothing is counted by may be left out. */
    if (pitch == 0 || (block->height == 1 && block->depth == 1 && named->y == 0 && named->z == 0))
        pitch = named->x + block->width;
    if (rows == 0 || (block->depth == 1 && named->z == 0))
        rows = named->y + block->height;
    REQUIRE(base != 0 && pitch >= named->x + block->width && rows >= named->y + block->height);
    size_t before = 0;
    size_t slice = 0;
    size_t last = 0;
    REQUIRE(!__builtin_mul_overflow(pitch, rows, &slice) &&
            !__builtin_mul_overflow(slice, named->z, &before) &&
            !__builtin_mul_overflow(slice, block->depth, &last));
    before += named->y * pitch + named->x;
    end->row_step = pitch;
    end->slice_step = slice;
    end->first = (char *)(uintptr_t)(base + before);
    const bool may_be_host = named->type == CU_MEMORYTYPE_UNIFIED && !space_covers(base);
    if (!on_host && !may_be_host)
        REQUIRE(memory_spans(base + before, span(end, block)));
    return CUDA_SUCCESS;
}

static CUresult resolve(const struct named_end *named, const struct block *block, struct end *end)
{
    REQUIRE(named->lod == 0);
    switch ((int)named->type) {
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return resolve_linear(named, block, end);
    case CU_MEMORYTYPE_ARRAY:
        return resolve_array(named, block, end);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult copy_describe(struct context *context, const CUDA_MEMCPY3D *wanted,
                       struct operation *operation)
{
    (void)context;
    REQUIRE(wanted != NULL);
    struct copy copy = {.block = {wanted->WidthInBytes, wanted->Height, wanted->Depth}};
    const struct named_end from = {
        .type = wanted->srcMemoryType,
        .host = wanted->srcHost,
        .device = wanted->srcDevice,
        .array = wanted->srcArray,
        .x = wanted->srcXInBytes,
        .y = wanted->srcY,
        .z = wanted->srcZ,
        .lod = wanted->srcLOD,
        .pitch = wanted->srcPitch,
        .height = wanted->srcHeight,
    };
    const struct named_end to = {
        .type = wanted->dstMemoryType,
        .host = wanted->dstHost,
        .device = wanted->dstDevice,
        .array = wanted->dstArray,
        .x = wanted->dstXInBytes,
        .y = wanted->dstY,
        .z = wanted->dstZ,
        .lod = wanted->dstLOD,
        .pitch = wanted->dstPitch,
        .height = wanted->dstHeight,
    };
    *operation = (struct operation){.node_type = CU_GRAPH_NODE_TYPE_MEMCPY};
    operation->node.copy = *wanted;
    if (copy.block.width == 0 || copy.block.height == 0 || copy.block.depth == 0)
        return CUDA_SUCCESS;
    TRY(resolve(&from, &copy.block, &copy.from));
    TRY(resolve(&to, &copy.block, &copy.to));
    operation->run = copy_run;
    memcpy(operation->arguments, &copy, sizeof copy);
    return CUDA_SUCCESS;
}

CUresult copy_describe_peer(const CUDA_MEMCPY3D_PEER *wanted, struct operation *operation)
{
    struct context *source = NULL;
    struct context *destination = NULL;
    REQUIRE(wanted != NULL);
    TRY(context_get(wanted->srcContext, &source));
    TRY(context_get(wanted->dstContext, &destination));
    /* The two structures differ only in what the contexts take the place of. */
    _Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "same layout");
    CUDA_MEMCPY3D copy;
    memcpy(&copy, wanted, sizeof copy);
    copy.reserved0 = copy.reserved1 = NULL;
    return copy_describe(destination, &copy, operation);
}

/* --- memset -------------------------------------------------------------------------------- */

struct fill {
    char *first;
    size_t pitch;
    size_t width;
    size_t height;
    uint32_t value;
    unsigned element_bytes;
};

static void fill_row(char *row, const struct fill *fill)
{
    if (fill->element_bytes == 1) {
        memset(row, (int)(fill->value & 0xff), fill->width);
        return;
    }
    for (size_t x = 0; x < fill->width; x++)
        memcpy(row + x * fill->element_bytes, &fill->value, fill->element_bytes);
}

static void fill_run(struct context *context, void *arguments)
{
    (void)context;
    const struct fill *fill = arguments;
    pthread_rwlock_rdlock(&moving);
    space_touch(address_of(fill->first),
                (fill->height - 1) * fill->pitch + fill->width * fill->element_bytes);
    for (size_t y = 0; y < fill->height; y++)
        fill_row(fill->first + y * fill->pitch, fill);
    pthread_rwlock_unlock(&moving);
}

CUresult memset_describe(struct context *context, const CUDA_MEMSET_NODE_PARAMS *wanted,
                         struct operation *operation)
{
    (void)context;
    REQUIRE(wanted != NULL);
    const unsigned element_bytes = wanted->elementSize;
    REQUIRE(element_bytes == 1 || element_bytes == 2 || element_bytes == 4);
    *operation = (struct operation){.node_type = CU_GRAPH_NODE_TYPE_MEMSET};
    operation->node.set = *wanted;
    if (wanted->width == 0 || wanted->height == 0)
        return CUDA_SUCCESS;
    size_t row_bytes = 0;
    size_t before_last = 0;
    REQUIRE(!__builtin_mul_overflow(wanted->width, (size_t)element_bytes, &row_bytes));
    const size_t pitch = wanted->height == 1 ? row_bytes : wanted->pitch;
    REQUIRE(pitch >= row_bytes && wanted->dst % element_bytes == 0 && pitch % element_bytes == 0);
    REQUIRE(!__builtin_mul_overflow(pitch, wanted->height - 1, &before_last) &&
            before_last <= SIZE_MAX - row_bytes);
    REQUIRE(memory_spans(wanted->dst, before_last + row_bytes));
    const struct fill fill = {
        .first = (char *)(uintptr_t)wanted->dst,
        .pitch = pitch,
        .width = wanted->width,
        .height = wanted->height,
        .value = wanted->value,
        .element_bytes = element_bytes,
    };
    operation->run = fill_run;
    memcpy(operation->arguments, &fill, sizeof fill);
    return CUDA_SUCCESS;
}
