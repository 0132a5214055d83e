/*
 * Tensor maps: checked as documented and kept as they were asked for.
 *
 * Only kernels read them, and kernels are not computed. So the 128 opaque bytes hold the address
 * and a digest of everything else: equal requests give equal maps, different ones different maps.
 */
#include <string.h>

#include "driver.h"

enum { MOST_DIMENSIONS = 5, MAP_ALIGNMENT = 64 };

/* What all kinds of maps are told, and what the kinds add as bytes. */
struct request {
    CUtensorMapDataType type;
    cuuint32_t rank;
    const void *address;
    const cuuint64_t *sizes;
    const cuuint64_t *strides;
    const cuuint32_t *element_strides;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static bool is_packed(CUtensorMapDataType type)
{
    return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B ||
           type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static bool is_float(CUtensorMapDataType type)
{
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static size_t element_bytes(CUtensorMapDataType type)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1, 1, 1};
    return bytes[type];
}

static CUresult check(const CUtensorMap *map, const struct request *request)
{
    const bool wide =
        request->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_packed(request->type);
    const uint64_t alignment = wide ? 32 : 16;
    REQUIRE(map != NULL && (uintptr_t)map % MAP_ALIGNMENT == 0);
    REQUIRE((unsigned)request->type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
    REQUIRE((unsigned)request->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B);
    REQUIRE((unsigned)request->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
    REQUIRE((unsigned)request->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    REQUIRE(request->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
            (request->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
             is_float(request->type)));
    REQUIRE(request->rank > 0 && request->rank <= MOST_DIMENSIONS);
    REQUIRE(request->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE || request->rank >= 3);
    REQUIRE(request->interleave != CU_TENSOR_MAP_INTERLEAVE_32B ||
            request->swizzle == CU_TENSOR_MAP_SWIZZLE_32B);
    REQUIRE((uintptr_t)request->address % alignment == 0);
    REQUIRE(request->sizes != NULL && request->element_strides != NULL);
    REQUIRE(request->rank == 1 || request->strides != NULL);
    for (cuuint32_t at = 0; at < request->rank; at++) {
        REQUIRE(request->sizes[at] > 0 && request->sizes[at] <= UINT64_C(1) << 32);
        REQUIRE(request->element_strides[at] > 0 && request->element_strides[at] <= 8);
        REQUIRE(at + 1 == request->rank || (request->strides[at] % alignment == 0 &&
                                            request->strides[at] < UINT64_C(1) << 40));
    }
    return CUDA_SUCCESS;
}

static uint64_t digest(uint64_t so_far, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count; at++)
        so_far = (so_far ^ ((const uint8_t *)bytes)[at]) * UINT64_C(0x100000001b3);
    return so_far;
}

static void encode(CUtensorMap *map, const struct request *request, const void *kind,
                   size_t kind_bytes)
{
    const int choices[] = {(int)request->type,    (int)request->rank,      (int)request->interleave,
                           (int)request->swizzle, (int)request->promotion, (int)request->fill};
    uint64_t words[sizeof *map / sizeof(uint64_t)] = {(uintptr_t)request->address};
    uint64_t summary = digest(UINT64_C(0xcbf29ce484222325), choices, sizeof choices);
    summary = digest(summary, request->sizes, request->rank * sizeof request->sizes[0]);
    if (request->rank > 1)
        summary =
            digest(summary, request->strides, (request->rank - 1) * sizeof request->strides[0]);
    summary = digest(summary, request->element_strides,
                     request->rank * sizeof request->element_strides[0]);
    words[1] = digest(summary, kind, kind_bytes);
    memcpy(map, words, sizeof words);
}

/* Without interleaving a row of the box is a multiple of 16 bytes and fits the swizzle's span. */
static CUresult check_row(const struct request *request, size_t row_bytes)
{
    static const uint8_t spans[] = {0, 32, 64, 128, 128, 128, 128};
    if (request->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || is_packed(request->type))
        return CUDA_SUCCESS;
    REQUIRE(row_bytes % 16 == 0);
    REQUIRE(request->swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || row_bytes <= spans[request->swizzle]);
    return CUDA_SUCCESS;
}

ENTRY cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                             void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                             const cuuint32_t *box, const cuuint32_t *element_strides,
                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    const struct request request = {type,       rank,    address,   sizes, strides, element_strides,
                                    interleave, swizzle, promotion, fill};
    TRY(driver_check());
    TRY(check(map, &request));
    REQUIRE(box != NULL);
    for (cuuint32_t at = 0; at < rank; at++)
        REQUIRE(box[at] > 0 && box[at] <= 256);
    TRY(check_row(&request, box[0] * element_bytes(type)));
    encode(map, &request, box, rank * sizeof box[0]);
    return CUDA_SUCCESS;
}

ENTRY cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                              void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                              const int *lower, const int *upper, cuuint32_t channels,
                              cuuint32_t pixels, const cuuint32_t *element_strides,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    const struct request request = {type,       rank,    address,   sizes, strides, element_strides,
                                    interleave, swizzle, promotion, fill};
    TRY(driver_check());
    TRY(check(map, &request));
    REQUIRE(rank >= 3 && lower != NULL && upper != NULL);
    REQUIRE(channels > 0 && channels <= 256 && pixels > 0 && pixels <= 1024);
    TRY(check_row(&request, channels * element_bytes(type)));
    int kind[2 * MOST_DIMENSIONS + 2] = {(int)channels, (int)pixels};
    memcpy(kind + 2, lower, (rank - 2) * sizeof lower[0]);
    memcpy(kind + 2 + MOST_DIMENSIONS, upper, (rank - 2) * sizeof upper[0]);
    encode(map, &request, kind, sizeof kind);
    return CUDA_SUCCESS;
}

ENTRY cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                  void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                                  int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
                                  const cuuint32_t *element_strides,
                                  CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                  CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                  CUtensorMapFloatOOBfill fill)
{
    const struct request request = {type,       rank,    address,   sizes, strides, element_strides,
                                    interleave, swizzle, promotion, fill};
    TRY(driver_check());
    TRY(check(map, &request));
    REQUIRE(rank >= 3 && channels > 0 && channels <= 256 && pixels > 0 && pixels <= 1024);
    REQUIRE((unsigned)mode <= CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128);
    const int kind[] = {lower, upper, (int)channels, (int)pixels, (int)mode};
    encode(map, &request, kind, sizeof kind);
    return CUDA_SUCCESS;
}

ENTRY cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    TRY(driver_check());
    REQUIRE(map != NULL && (uintptr_t)map % MAP_ALIGNMENT == 0 && (uintptr_t)address % 16 == 0);
    const uint64_t word = (uintptr_t)address;
    memcpy(map, &word, sizeof word);
    return CUDA_SUCCESS;
}
