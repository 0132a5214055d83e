/*
 * Pages of notes, and owners by small numbers.
 */
#include "blocks.h"

#include "private.h"
#include "spin.h"

uint64_t *block_pages[PAGES];

uint64_t *block_note_made(uint64_t address)
{
    const uint64_t number = address >> BLOCK_SHIFT;
    if (number / PAGE_NOTES >= PAGES)
        return NULL;
    void **place = (void **)&block_pages[number / PAGE_NOTES];
    uint64_t *notes = private_root(place, PAGE_NOTES * sizeof *notes);
    return notes == NULL ? NULL : notes + number % PAGE_NOTES;
}

bool block_join_slowly(uint64_t *note, uint64_t fresh)
{
    uint64_t present = __atomic_load_n(note, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(note, &present, present == 0 ? fresh : present + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        continue;
    return present == 0;
}

uint64_t block_leave_slowly(uint64_t *note)
{
    uint64_t present = __atomic_load_n(note, __ATOMIC_RELAXED);
    while (present != 0 &&
           !__atomic_compare_exchange_n(note, &present, note_is_last(present) ? 0 : present - 1,
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        continue;
    return present;
}

/* --- owners -------------------------------------------------------------------------------- */

struct owners {
    uint32_t lock;
    uint64_t keys[NOTE_OWNERS]; /* 0: free; the first is never used */
};

static void *root;

static struct owners *lock_owners(void)
{
    struct owners *owners = private_root(&root, sizeof *owners);
    if (owners != NULL)
        spin_lock(&owners->lock);
    return owners;
}

/* With the lock held; 0 when it is not there. */
static unsigned find(const struct owners *owners, uint64_t key)
{
    for (unsigned number = 1; number < NOTE_OWNERS; number++)
        if (owners->keys[number] == key)
            return number;
    return 0;
}

unsigned block_owner(uint64_t key)
{
    struct owners *owners = lock_owners();
    if (owners == NULL)
        return 0;
    unsigned number = find(owners, key);
    if (number == 0) {
        number = find(owners, 0);
        if (number != 0)
            owners->keys[number] = key;
    }
    spin_unlock(&owners->lock);
    return number;
}

static void end_in_page(uint64_t *notes, unsigned owner, void (*ended)(int device, uint64_t bytes))
{
    for (unsigned i = 0; i < PAGE_NOTES; i++) {
        uint64_t note = __atomic_load_n(&notes[i], __ATOMIC_RELAXED);
        const bool is_owned = note != 0 && (note >> NOTE_OWNER_SHIFT & (NOTE_OWNERS - 1)) == owner;
        if (is_owned && __atomic_compare_exchange_n(&notes[i], &note, 0, false, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_RELAXED))
            ended(note_device(note), note_bytes(note));
    }
}

void blocks_end(uint64_t key, void (*ended)(int device, uint64_t bytes))
{
    struct owners *owners = lock_owners();
    if (owners == NULL)
        return;
    const unsigned owner = find(owners, key);
    for (unsigned page = 0; owner != 0 && page < PAGES; page++) {
        uint64_t *notes = __atomic_load_n(&block_pages[page], __ATOMIC_ACQUIRE);
        if (notes != NULL)
            end_in_page(notes, owner, ended);
    }
    owners->keys[owner] = 0;
    spin_unlock(&owners->lock);
}
