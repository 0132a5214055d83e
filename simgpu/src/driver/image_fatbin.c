/*
 * Reading fat binaries: several images for several architectures in one, some of them packed.
 */
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define MAGIC_WRAPPER 0x466243b1u
#define MAGIC_CONTENT 0xba55ed50u
#define FLAG_LZ4 0x2000u
#define FLAG_OTHER_PACKING 0x8000u

enum { KIND_PTX = 1, KIND_ELF = 2 };

/* What the runtime's compiler puts into programs: a pointer to the content. */
struct wrapper {
    uint32_t magic;
    uint32_t version;
    const uint8_t *content;
    const void *file_name;
};

struct content {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* behind the header */
};

struct entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes; /* behind the header */
    uint32_t packed_bytes;
    uint32_t reserved0;
    uint16_t minor;
    uint16_t major;
    uint32_t architecture;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t reserved1;
    uint64_t unpacked_bytes;
};

/* Byte by byte: the data may be a text that is shorter than the magic. */
bool image_is_fatbin(const void *data)
{
    const uint32_t wrapper = MAGIC_WRAPPER;
    const uint32_t content = MAGIC_CONTENT;
    return strncmp(data, (const char *)&wrapper, sizeof wrapper) == 0 ||
           strncmp(data, (const char *)&content, sizeof content) == 0;
}

/* A length that goes on over bytes of 255; false at the end of the input. */
static bool add_length(const uint8_t **at, const uint8_t *end, size_t *length)
{
    uint8_t more = 255;
    while (more == 255) {
        if (*at == end)
            return false;
        more = *(*at)++;
        *length += more;
    }
    return true;
}

/* Undoes LZ4's block format; how many bytes came out, at most `room`. */
static size_t unpack(const uint8_t *at, size_t bytes, uint8_t *out, size_t room)
{
    const uint8_t *end = at + bytes;
    size_t done = 0;
    while (at < end) {
        const uint8_t token = *at++;
        size_t literal = token >> 4;
        if (literal == 15 && !add_length(&at, end, &literal))
            break;
        if (literal > (size_t)(end - at) || literal > room - done)
            break;
        memcpy(out + done, at, literal);
        at += literal;
        done += literal;
        if (end - at < 2)
            break;
        const size_t distance = (size_t)(at[0] | at[1] << 8);
        at += 2;
        size_t match = token & 15;
        if (match == 15 && !add_length(&at, end, &match))
            break;
        match += 4;
        if (distance == 0 || distance > done || match > room - done)
            break;
        for (size_t i = 0; i < match; i++, done++)
            out[done] = out[done - distance];
    }
    return done;
}

/* Code for the very generation runs; PTX runs on everything that is not older. */
static unsigned merit(const struct entry *entry, unsigned capability)
{
    if (entry->architecture > capability)
        return 0;
    if (entry->kind == KIND_ELF)
        return entry->architecture / 10 == capability / 10 ? 1000 + entry->architecture : 0;
    return entry->kind == KIND_PTX ? 1 + entry->architecture : 0;
}

static CUresult read_entry(const struct entry *entry, const uint8_t *payload, struct image *image)
{
    if ((entry->flags & FLAG_OTHER_PACKING) != 0) {
        image->target = entry->architecture;
        image->is_opaque = true;
        return CUDA_SUCCESS;
    }
    const uint8_t *data = payload;
    size_t bytes = entry->bytes;
    uint8_t *unpacked = NULL;
    if ((entry->flags & FLAG_LZ4) != 0) {
        if (entry->unpacked_bytes > 1u << 30 || entry->packed_bytes > bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        unpacked = malloc(entry->unpacked_bytes + 1);
        if (unpacked == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        bytes = unpack(payload, entry->packed_bytes, unpacked, entry->unpacked_bytes);
        data = unpacked;
    }
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    if (entry->kind == KIND_PTX)
        result = image_read_text((const char *)data, bytes, image);
    else if (bytes >= 64 && image_is_elf(data) && image_elf_bytes(data) <= bytes)
        result = image_read_elf(data, bytes, image);
    free(unpacked);
    return result;
}

/* `bytes` is 0 where only the content itself tells its size. */
CUresult image_read_fatbin(const uint8_t *data, size_t bytes, unsigned capability,
                           struct image *image)
{
    struct wrapper wrapper;
    memcpy(&wrapper, data, sizeof wrapper.magic);
    if (wrapper.magic == MAGIC_WRAPPER) {
        if (bytes != 0 && bytes < sizeof wrapper)
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.content;
        bytes = 0;
    }
    struct content content;
    if (data == NULL)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&content, data, sizeof content);
    if (content.magic != MAGIC_CONTENT || content.header_bytes < sizeof content)
        return CUDA_ERROR_INVALID_IMAGE;
    if (bytes != 0 &&
        (content.header_bytes > bytes || content.bytes > bytes - content.header_bytes))
        return CUDA_ERROR_INVALID_IMAGE;
    const uint8_t *at = data + content.header_bytes;
    uint64_t left = content.bytes;
    struct entry best = {0};
    const uint8_t *payload = NULL;
    while (left >= sizeof best) {
        struct entry entry;
        memcpy(&entry, at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        if (merit(&entry, capability) > merit(&best, capability)) {
            best = entry;
            payload = at + entry.header_bytes;
        }
        at += entry.header_bytes + entry.bytes;
        left -= entry.header_bytes + entry.bytes;
    }
    return payload != NULL ? read_entry(&best, payload, image) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}
