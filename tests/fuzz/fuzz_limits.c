/* Any bytes as a limits file: read, watched and updated without touching a byte outside of it. */

#include <stdlib.h>
#include <string.h>

#include "limits_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room);

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Most damage ends at a checksum; what comes after it is met by headers whose checksum is right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed)
{
    if (bytes < LIMITS_FILE_BYTES && seed % 8 == 0 && room >= LIMITS_FILE_BYTES) {
        struct limits_file fresh;
        struct limits_body body = {.head = {.device_count = 1, .policy = LIMITS_BURST}};
        limits_format(&fresh, ACCOUNT_MEMORY);
        limits_publish(&fresh, sizeof fresh, &body);
        memcpy(data, &fresh, bytes = sizeof fresh);
    }
    bytes = LLVMFuzzerMutate(data, bytes, room);
    if (bytes >= sizeof(struct limits_header) && seed % 4 != 0) {
        struct limits_header header;
        memcpy(&header, data, sizeof header);
        memcpy(header.magic, "ALIQLIM", 8);
        header.layout = LIMITS_LAYOUT - (seed >> 4) % 2;
        uint64_t words[offsetof(struct limits_header, checksum) / 8];
        memcpy(words, &header, sizeof words);
        header.checksum = sizeof words;
        for (size_t i = 0; i < sizeof words / 8; i++)
            header.checksum = mix(header.checksum, words[i]);
        memcpy(data, &header, sizeof header);
    }
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* A copy of exactly this length: the sanitizer sees every step beyond it. */
    uint8_t *image = malloc(bytes + 1);
    memcpy(image, data, bytes);
    struct limits_body body;
    struct limits_watch watch;
    int slot = limits_follow(image, bytes, ACCOUNT_MEMORY, &body, &watch);
    if (slot >= 0) {
        if (body.head.device_count == 0 || body.head.device_count > LIMITS_DEVICES)
            abort();
        for (uint32_t i = 0; i < body.head.device_count; i++)
            if (body.devices[i].limit_bytes > LIMITS_CAP_MAX &&
                body.devices[i].limit_bytes != UINT64_MAX)
                abort();
        if (!limits_unchanged(&watch))
            abort();
    } else if (limits_fault_text(slot) == NULL) {
        abort();
    }
    /* What can be updated must show the update. */
    struct limits_body update = {.head = {.device_count = 1, .policy = LIMITS_FIXED}};
    update.devices[0].limit_bytes = 4096;
    if (limits_publish(image, bytes, &update) == 0) {
        struct limits_header header;
        memcpy(&header, image, sizeof header);
        if (limits_read(image, bytes, header.kind, &body) < 0 ||
            body.devices[0].limit_bytes != 4096)
            abort();
    }
    free(image);
    return 0;
}
