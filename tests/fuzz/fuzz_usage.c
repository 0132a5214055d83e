/* Any bytes as a usage file: checked and read without touching a byte outside of it. */

#include <stdlib.h>
#include <string.h>

#include "usage_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room);

/* Headers that pass the checksum, with anything in them. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed)
{
    uint32_t fresh_bytes = usage_file_bytes(ACCOUNT_MEMORY, 1 + seed / 64 % LIMITS_DEVICES);
    if (bytes < fresh_bytes && seed % 8 == 0 && room >= fresh_bytes) {
        uint64_t *fresh = malloc(fresh_bytes);
        usage_format(fresh, ACCOUNT_MEMORY, 1 + seed / 64 % LIMITS_DEVICES);
        memcpy(data, fresh, bytes = fresh_bytes);
        free(fresh);
    }
    bytes = LLVMFuzzerMutate(data, bytes, room);
    if (bytes >= sizeof(struct usage_header) && seed % 4 != 0) {
        struct usage_header header;
        memcpy(&header, data, sizeof header);
        memcpy(header.magic, "ALIQUSE", 8);
        header.layout = USAGE_LAYOUT;
        uint64_t words[offsetof(struct usage_header, checksum) / 8];
        memcpy(words, &header, sizeof words);
        uint64_t hash = sizeof words;
        for (size_t i = 0; i < sizeof words / 8; i++) {
            hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
            hash ^= hash >> 29;
        }
        header.checksum = hash;
        memcpy(data, &header, sizeof header);
    }
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *image = malloc(bytes + 1);
    memcpy(image, data, bytes);
    for (uint32_t kind = ACCOUNT_MEMORY; kind <= ACCOUNT_COMPUTE; kind++) {
        int fault = usage_check(image, bytes, kind);
        if (fault != 0) {
            if (usage_fault_text(fault) == NULL)
                abort();
            continue;
        }
        uint32_t mark = usage_mark(image);
        if (mark > USAGE_SLOTS_MAX)
            abort();
        for (uint32_t slot = 0; slot < mark; slot++) {
            struct usage_process process;
            usage_slot(image, slot, &process);
            if (process.pid < 0)
                abort();
            for (int device = 0; kind == ACCOUNT_MEMORY && device < LIMITS_DEVICES; device++)
                if (process.values[USAGE_HELD_BYTES][device] >> 48 != 0)
                    abort();
        }
    }
    free(image);
    return 0;
}
