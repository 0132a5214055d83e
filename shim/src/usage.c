/* The usage file: formatting, checking and reading an image of it, wherever that lies. */

#include "usage_file.h"

#include <string.h>

static const char MAGIC[8] = "ALIQUSE";

/* The words of a device begin on a cache line of their own. */
enum { LINE_BYTES = 64, LINE_WORDS = LINE_BYTES / sizeof(uint64_t) };

static uint64_t checksum(const struct usage_header *header)
{
    uint64_t words[offsetof(struct usage_header, checksum) / sizeof(uint64_t)];
    memcpy(words, header, sizeof words);
    uint64_t hash = sizeof words;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* --- where everything is ------------------------------------------------------------------- */

static uint32_t measures(uint32_t kind)
{
    return kind == ACCOUNT_COMPUTE ? USAGE_MEASURES_MAX : 1;
}

static uint32_t owners_at(uint32_t device_count)
{
    return (uint32_t)(sizeof(struct usage_header) + device_count * sizeof(struct usage_counters));
}

static uint32_t words_per_slot(uint32_t kind, uint32_t device_count)
{
    return 1 + measures(kind) * device_count;
}

uint32_t usage_slots(uint32_t kind, uint32_t device_count)
{
    uint32_t room = USAGE_FILE_BYTES_MAX - owners_at(device_count);
    uint32_t slots = room / (uint32_t)sizeof(uint64_t) / words_per_slot(kind, device_count);
    slots -= slots % LINE_WORDS;
    return slots < USAGE_SLOTS_MAX ? slots : USAGE_SLOTS_MAX;
}

uint32_t usage_file_bytes(uint32_t kind, uint32_t device_count)
{
    return owners_at(device_count) + usage_slots(kind, device_count) *
                                         words_per_slot(kind, device_count) *
                                         (uint32_t)sizeof(uint64_t);
}

void usage_format(void *image, uint32_t kind, uint32_t device_count)
{
    uint32_t slots = usage_slots(kind, device_count);
    uint32_t bytes = usage_file_bytes(kind, device_count);
    struct usage_header header = {
        .layout = USAGE_LAYOUT,
        .kind = kind,
        .file_bytes = bytes,
        .device_count = device_count,
        .slot_count = slots,
        .measure_count = measures(kind),
        .counters_at = sizeof header,
        .owners_at = owners_at(device_count),
        .words_at = owners_at(device_count) + slots * (uint32_t)sizeof(uint64_t),
        .mark = usage_encode(0),
    };
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    header.checksum = checksum(&header);

    uint64_t *words = image;
    uint32_t coded_end = kind == ACCOUNT_MEMORY ? bytes : header.words_at;
    for (uint32_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = i < coded_end / sizeof *words ? USAGE_FREE : 0;
    if (kind == ACCOUNT_COMPUTE)
        memset((char *)image + header.counters_at, 0, header.owners_at - header.counters_at);
    memcpy(image, &header, sizeof header);
}

/* --- reading ------------------------------------------------------------------------------- */

static bool places_agree(const struct usage_header *h)
{
    uint64_t owners_end = (uint64_t)h->owners_at + h->slot_count * sizeof(uint64_t);
    uint64_t words = (uint64_t)h->measure_count * h->device_count * h->slot_count;
    uint64_t counters_end =
        h->counters_at + h->device_count * (uint64_t)sizeof(struct usage_counters);
    return (h->counters_at | h->owners_at | h->words_at) % sizeof(uint64_t) == 0 &&
           h->counters_at >= sizeof *h && counters_end <= h->owners_at &&
           owners_end <= h->words_at && h->words_at + words * sizeof(uint64_t) <= h->file_bytes;
}

int usage_check(const void *image, size_t bytes, uint32_t kind)
{
    struct usage_header header;
    if (bytes < sizeof header)
        return USAGE_TOO_SHORT;
    memcpy(&header, image, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
        return USAGE_NOT_USAGE;
    if (header.checksum != checksum(&header))
        return USAGE_DAMAGED;
    if (header.layout != USAGE_LAYOUT && header.layout != USAGE_LAYOUT - 1)
        return USAGE_OTHER_LAYOUT;
    if (header.kind != kind)
        return USAGE_OTHER_KIND;
    if (bytes < header.file_bytes)
        return USAGE_TOO_SHORT;
    if (header.device_count == 0 || header.device_count > LIMITS_DEVICES ||
        header.slot_count == 0 || header.slot_count > USAGE_SLOTS_MAX ||
        header.measure_count == 0 || header.measure_count > USAGE_MEASURES_MAX)
        return USAGE_DAMAGED;
    return places_agree(&header) ? 0 : USAGE_DAMAGED;
}

const char *usage_fault_text(int fault)
{
    switch (fault) {
    case USAGE_TOO_SHORT:
        return "is too short";
    case USAGE_NOT_USAGE:
        return "is not a usage file";
    case USAGE_OTHER_LAYOUT:
        return "was made by another version";
    case USAGE_OTHER_KIND:
        return "is of the other kind (memory and compute are mixed up)";
    default:
        return "is damaged";
    }
}

uint64_t usage_decode(uint64_t word)
{
    uint64_t value = usage_total(word, 1);
    return value < UINT64_C(1) << 48 ? value : UINT64_MAX;
}

uint32_t usage_mark(const void *image)
{
    const struct usage_header *header = image;
    uint64_t mark = usage_decode(header->mark);
    return mark <= header->slot_count ? (uint32_t)mark : header->slot_count;
}

void usage_slot(const void *image, uint32_t slot, struct usage_process *process)
{
    const struct usage_header *header = image;
    const uint64_t *owners = (const uint64_t *)((const char *)image + header->owners_at);
    const uint64_t *words = (const uint64_t *)((const char *)image + header->words_at);
    memset(process, 0, sizeof *process);
    struct usage_name name = usage_name(owners[slot]);
    if (name.pid < 0)
        process->damaged++;
    else {
        process->pid = name.pid;
        process->namespace_id = name.namespace_id;
        process->start_id = name.start_id;
    }
    for (uint32_t measure = 0; measure < header->measure_count; measure++)
        for (uint32_t device = 0; device < header->device_count; device++) {
            uint64_t value =
                words[(measure * header->device_count + device) * header->slot_count + slot];
            if (header->kind == ACCOUNT_MEMORY)
                value = usage_decode(value);
            if (header->kind == ACCOUNT_MEMORY && value == UINT64_MAX)
                process->damaged++;
            else
                process->values[measure][device] = value;
        }
}
