/*
 * The table of replaced calls, and finding a row in it.
 */
#include "table.h"

#include <string.h>

struct originals real;

const struct row rows[] = {
#define DRIVER(name, version, how, words)                                                          \
    {#name, (void *)name, (void **)&real.name, version, TREATMENT_##how, LIBRARY_DRIVER},
#define NVML(name, how, words)                                                                     \
    {#name, (void *)name, (void **)&real.name, 0, TREATMENT_##how, LIBRARY_NVML},
#define DRIVER_USED(name) {#name, NULL, (void **)&real.name, 0, TREATMENT_NONE, LIBRARY_DRIVER},
#define NVML_USED(name) {#name, NULL, (void **)&real.name, 0, TREATMENT_NONE, LIBRARY_NVML},
#include "hooks.def"
#undef DRIVER
#undef NVML
#undef DRIVER_USED
#undef NVML_USED
};

const unsigned row_count = sizeof rows / sizeof rows[0];

const struct row *row_named(const char *symbol)
{
    for (const struct row *row = rows; row < rows + row_count; row++)
        if (row->replacement != NULL && strcmp(row->symbol, symbol) == 0)
            return row;
    return NULL;
}

const struct row *row_of(const void *original, const char *name)
{
    const size_t length = strlen(name);
    for (const struct row *row = rows; row < rows + row_count; row++)
        if (row->replacement != NULL && *row->original == original &&
            strncmp(row->symbol, name, length) == 0)
            return row;
    return NULL;
}

bool row_replaces(const void *function)
{
    for (const struct row *row = rows; row < rows + row_count; row++)
        if (row->replacement == function)
            return true;
    return false;
}

/* What follows the base name in a symbol (`_v2`, `_ptsz`, `_v2_ptsz` or nothing), or NULL. */
static const char *suffix_after(const char *symbol, const char *base)
{
    const size_t length = strlen(base);
    if (strncmp(symbol, base, length) != 0)
        return NULL;
    const char *suffix = symbol + length;
    if (suffix[0] == '_' && suffix[1] == 'v' && suffix[2] >= '0' && suffix[2] <= '9')
        return suffix + 3;
    return suffix;
}

const struct row *row_requested(const char *base, int version, int per_thread)
{
    const struct row *best = NULL;
    int best_is_twin = 0;
    for (const struct row *row = rows; row < rows + row_count; row++) {
        if (row->replacement == NULL || row->library != LIBRARY_DRIVER || row->since > version)
            continue;
        const char *suffix = suffix_after(row->symbol, base);
        if (suffix == NULL)
            continue;
        const int is_twin = strcmp(suffix, "_ptsz") == 0 || strcmp(suffix, "_ptds") == 0;
        if ((*suffix != '\0' && !is_twin) || (is_twin && !per_thread))
            continue;
        if (best == NULL || is_twin > best_is_twin ||
            (is_twin == best_is_twin && row->since > best->since)) {
            best = row;
            best_is_twin = is_twin;
        }
    }
    return best;
}
