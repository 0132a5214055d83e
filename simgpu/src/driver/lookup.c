/*
 * cuGetProcAddress: entries by base name, CUDA version and kind of default stream.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum variant { NONE, PTDS, PTSZ };

struct name {
    const char *base;
    void (*entry)(void);
    int version;
    enum variant variant;
};

/* The entries' own declarations differ; here only their addresses matter. */
#define NAME(base, symbol, version, variant) extern void entry_##symbol(void) __asm__(#symbol);
#include "names.def"
#undef NAME

#define NAME(base, symbol, version, variant) {#base, entry_##symbol, version, variant},
static const struct name names[] = {
#include "names.def"
};
#undef NAME

enum { NAME_COUNT = sizeof names / sizeof names[0] };

/* The first row of a base name, or NULL; the rows of one base follow each other. */
static const struct name *first_of(const char *base)
{
    size_t low = 0;
    size_t high = NAME_COUNT;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(names[middle].base, base) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < NAME_COUNT && strcmp(names[low].base, base) == 0 ? &names[low] : NULL;
}

/* The newest row of the base that the version allows; per-thread rows win where they are wanted. */
static const struct name *newest_of(const struct name *first, int version, bool per_thread)
{
    const struct name *found = NULL;
    for (const struct name *row = first;
         row < names + NAME_COUNT && strcmp(row->base, first->base) == 0; row++) {
        if (row->version > version || (row->variant != NONE && !per_thread))
            continue;
        const bool better_variant = found != NULL && row->variant != NONE && found->variant == NONE;
        const bool same_variant =
            found != NULL && (row->variant == NONE) == (found->variant == NONE);
        if (found == NULL || better_variant || (same_variant && row->version > found->version))
            found = row;
    }
    return found;
}

static int newest_version(void)
{
    const char *why = NULL;
    const struct sim_state *node = sim_node(&why);
    if (node != NULL)
        return (int)node->cuda_version;
    int newest = 0;
    for (size_t i = 0; i < NAME_COUNT; i++)
        newest = names[i].version > newest ? names[i].version : newest;
    return newest;
}

/* Also answers programs that look entries up before they have a node, as cuInit is one of them. */
ENTRY cuGetProcAddress_v2(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    REQUIRE(symbol != NULL && pfn != NULL);
    *pfn = NULL;
    REQUIRE((flags & ~known) == 0 && flags != known);
    REQUIRE(cuda_version <= newest_version());
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const struct name *first = first_of(symbol);
    if (first != NULL) {
        const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
        const struct name *found = newest_of(first, cuda_version, per_thread);
        result = found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                               : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (found != NULL)
            memcpy(pfn, &found->entry, sizeof *pfn);
    }
    if (status != NULL)
        *status = result;
    return CUDA_SUCCESS;
}

ENTRY cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags)
{
    TRY(cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, NULL));
    return *pfn != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* There are no private tables here; whoever insists on one learns that this is not their driver. */
ENTRY cuGetExportTable(const void **table, const CUuuid *id)
{
    REQUIRE(table != NULL && id != NULL);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
