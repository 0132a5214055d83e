/* Which of the node's devices a program sees, and in which order. */
#include "visible.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct sim_profile *profile(const struct sim_state *node, unsigned index)
{
    return &node->devices[index].profile;
}

static uint64_t pci_place(const struct sim_profile *device)
{
    return (uint64_t)device->pci_domain << 32 | device->pci_bus;
}

static uint64_t speed(const struct sim_profile *device)
{
    return (uint64_t)device->sm_count * device->sm_clock_mhz;
}

static bool comes_before(const struct sim_profile *one, const struct sim_profile *other,
                         bool fastest_first)
{
    if (fastest_first && speed(one) != speed(other))
        return speed(one) > speed(other);
    return pci_place(one) < pci_place(other);
}

static void order_devices(const struct sim_state *node, bool fastest_first,
                          unsigned indices[SIM_DEVICES])
{
    for (unsigned device = 0; device < node->device_count; device++) {
        unsigned place = device;
        while (place > 0 && comes_before(profile(node, device), profile(node, indices[place - 1]),
                                         fastest_first)) {
            indices[place] = indices[place - 1];
            place--;
        }
        indices[place] = device;
    }
}

/* The place in `ordered` that a word names: a number, or how a uuid begins; -1 for neither. */
static int named(const struct sim_state *node, const unsigned ordered[SIM_DEVICES],
                 const char *word, size_t length)
{
    if (length >= 4 && strncasecmp(word, "GPU-", 4) == 0) {
        int found = -1;
        for (unsigned place = 0; place < node->device_count; place++) {
            if (strncasecmp(profile(node, ordered[place])->uuid, word, length) != 0)
                continue;
            if (found >= 0)
                return -1; /* two begin like this */
            found = (int)place;
        }
        return found;
    }
    char *end = NULL;
    const long number = strtol(word, &end, 10);
    const bool whole = length > 0 && end == word + length;
    return whole && number >= 0 && number < (long)node->device_count ? (int)number : -1;
}

unsigned visible_devices(const struct sim_state *node, const char *order, const char *visible,
                         unsigned indices[SIM_DEVICES])
{
    unsigned ordered[SIM_DEVICES];
    const bool fastest_first = order == NULL || strcmp(order, "PCI_BUS_ID") != 0;
    order_devices(node, fastest_first, ordered);
    if (visible == NULL) {
        memcpy(indices, ordered, sizeof ordered);
        return node->device_count;
    }
    unsigned count = 0;
    uint32_t seen = 0;
    for (const char *word = visible; count < node->device_count;) {
        word += strspn(word, " \t");
        const size_t field = strcspn(word, ",");
        size_t length = field;
        while (length > 0 && (word[length - 1] == ' ' || word[length - 1] == '\t'))
            length--;
        /* The first word that names no device ends the list, as documented; so does a repeat. */
        const int place = named(node, ordered, word, length);
        if (place < 0 || (seen >> place & 1) != 0)
            break;
        seen |= UINT32_C(1) << place;
        indices[count++] = ordered[place];
        if (word[field] == '\0')
            break;
        word += field + 1;
    }
    return count;
}
