/*
 * Hides devices that are not in the limits by the driver's own means.
 *
 * The driver reads CUDA_VISIBLE_DEVICES once, in cuInit, and numbers what it names. Ordinals,
 * locations, peer access and attributes then agree with each other in every call, which no
 * renumbering from outside could promise. Other threads may read the environment meanwhile: nothing
 * that they could hold is freed or moved, one pointer is exchanged, and put back.
 */
#define _GNU_SOURCE
#include "visible.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ledger.h"

enum { UUID_TEXT = sizeof "GPU-00000000-0000-0000-0000-000000000000", LIST_DEVICES = 64 };

static const char variable[] = "CUDA_VISIBLE_DEVICES=";

static void uuid_text(unsigned device, char text[UUID_TEXT])
{
    const uint8_t *uuid = ledger_uuid(device);
    char *end = text + sprintf(text, "GPU");
    for (unsigned i = 0; i < 16; i++) {
        const bool starts_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        end += sprintf(end, starts_group ? "-%02x" : "%02x", uuid[i]);
    }
}

/* The account's device that a word of the program's list names, or -1. */
static int named(const char *word, size_t length)
{
    if (length >= 4 && strncasecmp(word, "GPU-", 4) == 0) {
        int found = -1;
        for (unsigned device = 0; device < ledger_devices(); device++) {
            char text[UUID_TEXT];
            uuid_text(device, text);
            if (length < UUID_TEXT && strncasecmp(text, word, length) == 0) {
                if (found >= 0)
                    return -1; /* two begin like this */
                found = (int)device;
            }
        }
        return found;
    }
    char *end = NULL;
    const long number = strtol(word, &end, 10);
    return length > 0 && end == word + length && number >= 0 && number < (long)ledger_devices()
               ? (int)number
               : -1;
}

/* The program's list as uuids. Its first word that names no device ends it, as documented. */
static void narrow_list(const char *list, char *text)
{
    uint64_t seen = 0;
    const char *separator = "";
    for (const char *word = list;;) {
        word += strspn(word, " \t");
        const size_t field = strcspn(word, ",");
        size_t length = field;
        while (length > 0 && (word[length - 1] == ' ' || word[length - 1] == '\t'))
            length--;
        const int device = named(word, length);
        if (device < 0 || (seen >> device & 1) != 0)
            return;
        seen |= UINT64_C(1) << device;
        char uuid[UUID_TEXT];
        uuid_text((unsigned)device, uuid);
        text += sprintf(text, "%s%s", separator, uuid);
        separator = ",";
        if (word[field] == '\0')
            return;
        word += field + 1;
    }
}

static void whole_list(char *text)
{
    const char *separator = "";
    for (unsigned device = 0; device < ledger_devices() && device < LIST_DEVICES; device++) {
        char uuid[UUID_TEXT];
        uuid_text(device, uuid);
        text += sprintf(text, "%s%s", separator, uuid);
        separator = ",";
    }
}

/* Static: whoever has read the environment keeps a pointer that stays good. */
static char narrowed[sizeof variable + LIST_DEVICES * UUID_TEXT];

void visible_narrow(struct visible *before)
{
    *before = (struct visible){NULL, NULL, NULL};
    size_t count = 0;
    char **entry = NULL;
    for (char **each = environ; each != NULL && *each != NULL; each++, count++)
        if (strncmp(*each, variable, sizeof variable - 1) == 0)
            entry = each;
    memcpy(narrowed, variable, sizeof variable);
    if (entry != NULL) {
        narrow_list(*entry + sizeof variable - 1, narrowed + sizeof variable - 1);
        before->entry = *entry;
        __atomic_store_n(entry, narrowed, __ATOMIC_RELEASE);
        return;
    }
    whole_list(narrowed + sizeof variable - 1);
    /* Never freed, for the same reason; the driver is initialised once in a process's life. */
    char **longer = malloc((count + 2) * sizeof *longer);
    if (longer == NULL)
        return;
    if (count > 0)
        memcpy(longer + 1, environ, count * sizeof *longer);
    longer[0] = narrowed;
    longer[count + 1] = NULL;
    before->environment = environ;
    before->longer = longer;
    __atomic_store_n(&environ, longer, __ATOMIC_RELEASE);
}

void visible_restore(const struct visible *before)
{
    /* Another thread may have set a variable meanwhile; its environment is left as it made it. */
    if (before->longer != NULL && environ == before->longer)
        __atomic_store_n(&environ, before->environment, __ATOMIC_RELEASE);
    if (before->entry == NULL)
        return;
    for (char **each = environ; each != NULL && *each != NULL; each++)
        if (*each == narrowed)
            __atomic_store_n(each, before->entry, __ATOMIC_RELEASE);
}
