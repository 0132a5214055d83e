/* The limits file: formatting, publishing and reading an image of it, wherever that lies. */

#include "limits_file.h"

#include <stdbool.h>
#include <string.h>

static const char MAGIC[8] = "ALIQLIM";

/* The least that a record must hold to be of any use: up to the guaranteed share. */
enum {
    HEAD_BYTES_MIN = offsetof(struct limits_head, generation),
    DEVICE_BYTES_MIN = offsetof(struct limits_device, grant) + sizeof(uint32_t),
    SLOT_PREFIX_BYTES = offsetof(struct limits_slot, body),
    READ_ATTEMPTS = 8,
};

/*
 * Readers copy while a writer may be writing, so everything in a slot is moved in atomic words, in
 * order: who sees a word of the new body also sees that the old sequence is gone. A copy of two
 * halves is then found out instead of being undefined behaviour.
 */
static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t header_checksum(const struct limits_header *header)
{
    uint64_t words[offsetof(struct limits_header, checksum) / sizeof(uint64_t)];
    memcpy(words, header, sizeof words);
    uint64_t hash = sizeof words;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = mix(hash, words[i]);
    return hash;
}

/* --- the header ---------------------------------------------------------------------------- */

static bool sizes_agree(const struct limits_header *h, size_t bytes)
{
    uint32_t all = h->slots_at | h->slot_bytes | h->head_bytes | h->device_bytes;
    if (all % sizeof(uint64_t) != 0 || h->file_bytes > bytes)
        return false;
    if (h->head_bytes < HEAD_BYTES_MIN || h->device_bytes < DEVICE_BYTES_MIN)
        return false;
    uint64_t slot =
        SLOT_PREFIX_BYTES + (uint64_t)h->head_bytes + LIMITS_DEVICES * (uint64_t)h->device_bytes;
    return slot <= h->slot_bytes && h->slots_at >= sizeof *h &&
           h->slots_at + LIMITS_SLOTS * (uint64_t)h->slot_bytes <= h->file_bytes;
}

/* Copies the header out first: what is checked is then what is used. */
static int read_header(const void *image, size_t bytes, struct limits_header *header)
{
    if (bytes < sizeof *header)
        return LIMITS_TOO_SHORT;
    memcpy(header, image, sizeof *header);
    if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0)
        return LIMITS_NOT_LIMITS;
    if (header->checksum != header_checksum(header))
        return LIMITS_DAMAGED;
    if (header->layout != LIMITS_LAYOUT && header->layout != LIMITS_LAYOUT - 1)
        return LIMITS_OTHER_LAYOUT;
    if (header->file_bytes > bytes)
        return LIMITS_TOO_SHORT;
    return sizes_agree(header, bytes) ? 0 : LIMITS_DAMAGED;
}

static uint64_t *slot_words(const struct limits_header *header, const void *image, int slot)
{
    return (uint64_t *)((char *)(uintptr_t)image + header->slots_at +
                        (size_t)slot * header->slot_bytes);
}

void limits_format(struct limits_file *image, uint32_t kind)
{
    memset(image, 0, sizeof *image);
    struct limits_header *header = &image->header;
    memcpy(header->magic, MAGIC, sizeof MAGIC);
    header->layout = LIMITS_LAYOUT;
    header->kind = kind;
    header->file_bytes = sizeof *image;
    header->slots_at = offsetof(struct limits_file, slots);
    header->slot_bytes = sizeof(struct limits_slot);
    header->head_bytes = sizeof(struct limits_head);
    header->device_bytes = sizeof(struct limits_device);
    header->checksum = header_checksum(header);
}

/* --- the body ------------------------------------------------------------------------------ */

/* A body that makes no sense is as bad as a damaged one: garbage must never read as "no cap". */
static bool makes_sense(const struct limits_body *body)
{
    const struct limits_head *head = &body->head;
    if (head->device_count == 0 || head->device_count > LIMITS_DEVICES)
        return false;
    if (head->policy < LIMITS_FIXED || head->policy > LIMITS_BEST_EFFORT)
        return false;
    for (uint32_t i = 0; i < head->device_count; i++) {
        const struct limits_device *device = &body->devices[i];
        if (device->limit_bytes > LIMITS_CAP_MAX && device->limit_bytes != UINT64_MAX)
            return false;
        if (device->share > LIMITS_WHOLE || device->grant > LIMITS_WHOLE)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (memcmp(device->uuid, body->devices[j].uuid, sizeof device->uuid) == 0)
                return false;
    }
    return true;
}

/* Copies as much of a record as both sides know, and hashes all of it. */
static uint64_t read_record(uint64_t hash, const uint64_t *words, size_t stored, uint64_t *copy,
                            size_t wanted)
{
    for (size_t i = 0; i < stored; i++) {
        uint64_t word = load(&words[i]);
        hash = mix(hash, word);
        if (i < wanted)
            copy[i] = word;
    }
    return hash;
}

/* Reads one slot, checksum included; answers its sequence or 0 when it is not valid. */
static uint64_t read_slot(const struct limits_header *header, const void *image, int slot,
                          struct limits_body *body)
{
    const uint64_t *words = slot_words(header, image, slot);
    uint64_t sequence = load(&words[0]);
    uint64_t checksum = load(&words[1]);
    if (sequence == 0)
        return 0;
    union {
        struct limits_body body;
        uint64_t words[sizeof(struct limits_body) / sizeof(uint64_t)];
    } copy;
    memset(&copy, 0, sizeof copy);
    size_t head_words = header->head_bytes / sizeof(uint64_t);
    size_t device_words = header->device_bytes / sizeof(uint64_t);
    size_t own_head = sizeof(struct limits_head) / sizeof(uint64_t);
    size_t own_device = sizeof(struct limits_device) / sizeof(uint64_t);
    const uint64_t *at = words + SLOT_PREFIX_BYTES / sizeof(uint64_t);
    uint64_t hash = read_record(mix(0, sequence), at, head_words, copy.words, own_head);
    at += head_words;
    for (size_t i = 0; i < LIMITS_DEVICES; i++, at += device_words)
        hash =
            read_record(hash, at, device_words, copy.words + own_head + i * own_device, own_device);
    /* The copy is whole when no writer has begun on the slot since: it first clears the sequence.
     */
    if (hash != checksum || load(&words[0]) != sequence || !makes_sense(&copy.body))
        return 0;
    *body = copy.body;
    return sequence;
}

int limits_read(const void *image, size_t bytes, uint32_t kind, struct limits_body *body)
{
    struct limits_header header;
    int fault = read_header(image, bytes, &header);
    if (fault != 0)
        return fault;
    if (header.kind != kind)
        return LIMITS_OTHER_KIND;
    /* Both slots can only be invalid to a reader whom the writer laps; it will not do so twice. */
    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        uint64_t first = load(slot_words(&header, image, 0));
        uint64_t second = load(slot_words(&header, image, 1));
        int newer = second > first;
        if (read_slot(&header, image, newer, body) != 0)
            return newer;
        if (read_slot(&header, image, !newer, body) != 0)
            return !newer;
    }
    return LIMITS_DAMAGED;
}

int limits_follow(const void *image, size_t bytes, uint32_t kind, struct limits_body *body,
                  struct limits_watch *watch)
{
    *watch = (struct limits_watch){.word = NULL};
    struct limits_header header;
    int fault = read_header(image, bytes, &header);
    if (fault != 0)
        return fault;
    /* The next update goes into the older slot, and begins by clearing its sequence. */
    uint64_t seen[LIMITS_SLOTS];
    for (int slot = 0; slot < LIMITS_SLOTS; slot++)
        seen[slot] = load(slot_words(&header, image, slot));
    int newest = limits_read(image, bytes, kind, body);
    if (newest >= 0)
        *watch = (struct limits_watch){slot_words(&header, image, !newest), seen[!newest]};
    return newest;
}

/* --- publishing ---------------------------------------------------------------------------- */

static uint64_t write_record(uint64_t hash, uint64_t *words, size_t stored, const void *record,
                             size_t record_bytes)
{
    for (size_t i = 0; i < stored; i++) {
        uint64_t word = 0;
        if ((i + 1) * sizeof word <= record_bytes)
            memcpy(&word, (const char *)record + i * sizeof word, sizeof word);
        hash = mix(hash, word);
        store(&words[i], word);
    }
    return hash;
}

static void write_slot(const struct limits_header *header, uint64_t *words, uint64_t sequence,
                       const struct limits_body *body)
{
    store(&words[0], 0);
    size_t head_words = header->head_bytes / sizeof(uint64_t);
    size_t device_words = header->device_bytes / sizeof(uint64_t);
    uint64_t *at = words + SLOT_PREFIX_BYTES / sizeof(uint64_t);
    uint64_t hash = write_record(mix(0, sequence), at, head_words, &body->head, sizeof body->head);
    at += head_words;
    for (size_t i = 0; i < LIMITS_DEVICES; i++, at += device_words)
        hash = write_record(hash, at, device_words, &body->devices[i], sizeof body->devices[i]);
    store(&words[1], hash);
    store(&words[0], sequence);
}

int limits_publish(void *image, size_t bytes, const struct limits_body *body)
{
    struct limits_header header;
    int fault = read_header(image, bytes, &header);
    if (fault != 0)
        return fault;
    if (!makes_sense(body))
        return LIMITS_DAMAGED;
    struct limits_body discarded;
    uint64_t sequences[LIMITS_SLOTS];
    for (int slot = 0; slot < LIMITS_SLOTS; slot++)
        sequences[slot] = read_slot(&header, image, slot, &discarded);
    int older = sequences[1] < sequences[0];
    write_slot(&header, slot_words(&header, image, older), sequences[!older] + 1, body);
    return 0;
}

const char *limits_fault_text(int fault)
{
    switch (fault) {
    case LIMITS_TOO_SHORT:
        return "is too short";
    case LIMITS_NOT_LIMITS:
        return "is not a limits file";
    case LIMITS_OTHER_LAYOUT:
        return "was made by another version";
    case LIMITS_OTHER_KIND:
        return "is of the other kind (memory and compute are mixed up)";
    default:
        return "is damaged";
    }
}
