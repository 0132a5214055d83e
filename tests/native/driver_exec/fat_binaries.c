/* Fat binaries: several images in one, of which the best is taken. */
#include "bench.h"

enum { PTX_ENTRY = 1, PACKED = 0x2000, PACKED_OTHERWISE = 0x8000, HEADER = 16, ENTRY_HEADER = 64 };

static void put(unsigned char *at, uint64_t value, size_t bytes)
{
    memcpy(at, &value, bytes);
}

/* Adds an image to a fat binary, as the compiler lays it out. */
static void add_entry(unsigned char *fat, unsigned architecture, unsigned flags,
                      const void *payload, size_t bytes, size_t unpacked_bytes)
{
    uint64_t used = 0;
    memcpy(&used, fat + 8, 8);
    unsigned char *entry = fat + HEADER + used;
    put(entry, PTX_ENTRY, 2);
    put(entry + 2, 0x101, 2);
    put(entry + 4, ENTRY_HEADER, 4);
    put(entry + 8, bytes, 8);
    put(entry + 16, bytes, 4);
    put(entry + 28, architecture, 4);
    put(entry + 40, flags, 8);
    put(entry + 56, unpacked_bytes, 8);
    memcpy(entry + ENTRY_HEADER, payload, bytes);
    put(fat + 8, used + ENTRY_HEADER + bytes, 8);
}

static void start_fat(unsigned char *fat)
{
    put(fat, 0xba55ed50, 4);
    put(fat + 4, 1, 2);
    put(fat + 6, HEADER, 2);
    put(fat + 8, 0, 8);
}

static bool has_function(const void *image, const char *name)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    OK(cuModuleLoadData(&module, image));
    const CUresult result = cuModuleGetFunction(&function, module, name);
    OK(cuModuleUnload(module));
    return result == CUDA_SUCCESS;
}

CASE(fat_binaries_offer_the_best_image)
{
    static const char old[] = ".version 8.0\n.target sm_70\n.entry old() { ret; }";
    static const char good[] = ".version 8.0\n.target sm_90\n.entry good() { ret; }";
    static const char new[] = ".version 8.0\n.target sm_100\n.entry new() { ret; }";
    static unsigned char fat[4096];
    const struct {
        uint32_t magic;
        uint32_t version;
        const void *content;
        const void *name;
    } wrapper = {0x466243b1, 1, fat, NULL};
    CUmodule module = NULL;
    new_context();
    start_fat(fat);
    add_entry(fat, 100, 0, new, sizeof new, 0);
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, fat));
    add_entry(fat, 70, 0, old, sizeof old, 0);
    CHECK(has_function(fat, "old"));
    add_entry(fat, 90, 0, good, sizeof good, 0);
    CHECK(has_function(fat, "good"));
    CHECK(!has_function(fat, "old"));
    CHECK(has_function(&wrapper, "good"));
    put(fat + HEADER + 8, 1 << 20, 8);
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, fat));
}

CASE(packed_images_are_unpacked)
{
    static const char text[] = ".version 8.0\n.target sm_90\n.entry packed() { ret; }          ;";
    static unsigned char fat[4096];
    unsigned char block[128];
    size_t used = 0;
    new_context();
    /* As one run of literals, with its length in two bytes, up to the blanks ... */
    const size_t literal = strlen(text) - 10;
    block[used++] = 0xf0 | (9 - 4);
    block[used++] = (unsigned char)(literal - 15);
    memcpy(block + used, text, literal);
    used += literal;
    /* ... which repeat the one before them; the last sign follows. */
    block[used++] = 1;
    block[used++] = 0;
    block[used++] = 0x10;
    block[used++] = ';';
    start_fat(fat);
    add_entry(fat, 90, PACKED, block, used, strlen(text));
    CHECK(has_function(fat, "packed"));
    CHECK(!has_function(fat, "other"));
    start_fat(fat);
    add_entry(fat, 90, PACKED_OTHERWISE, block, used, strlen(text));
    CHECK(has_function(fat, "anything")); /* cannot be looked into, so it may be there */
}
