/*
 * Reads libc's symbol table through dl_iterate_phdr.
 *
 * dlsym cannot be asked for dlsym, because this library is what answers; dlvsym would do on glibc,
 * with a version that depends on its release (2.2.5, 2.17, 2.34), and does not exist on musl. The
 * table itself is there on both. Before glibc 2.34 the functions live in libdl.so.2, which is
 * loaded wherever somebody calls them; until then the answer is that there are none.
 */
#define _GNU_SOURCE
#include "libc_symbol.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

/* What is needed of an object's dynamic section to look up names. */
struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    ElfW(Addr) base;
};

/* glibc relocates these addresses in place, musl does not. */
static const void *relocated(const struct symbols *symbols, ElfW(Addr) address)
{
    return (const void *)(address < symbols->base ? address + symbols->base : address);
}

static bool symbols_open(struct symbols *symbols, const struct dl_phdr_info *object)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    if (dynamic == NULL)
        return false;
    *symbols = (struct symbols){.base = object->dlpi_addr};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = relocated(symbols, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            symbols->table = address;
            break;
        case DT_STRTAB:
            symbols->names = address;
            break;
        case DT_GNU_HASH:
            symbols->gnu_hash = address;
            break;
        case DT_HASH:
            symbols->hash = address;
            break;
        default:
            break;
        }
    }
    return symbols->table != NULL && symbols->names != NULL;
}

static void *defined(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    if (symbol->st_shndx == SHN_UNDEF || strcmp(symbols->names + symbol->st_name, name) != 0)
        return NULL;
    return (void *)(symbols->base + symbol->st_value);
}

static void *find_gnu(const struct symbols *symbols, const char *name)
{
    uint32_t hash = 5381;
    for (const unsigned char *c = (const void *)name; *c != '\0'; c++)
        hash = hash * 33 + *c;
    const uint32_t buckets = symbols->gnu_hash[0];
    const uint32_t first = symbols->gnu_hash[1];
    const uint32_t bloom_words = symbols->gnu_hash[2];
    const uint32_t *bucket =
        symbols->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    uint32_t index = buckets == 0 ? 0 : bucket[hash % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        const uint32_t link = chain[index - first];
        if ((link | 1) == (hash | 1)) {
            void *found = defined(symbols, index, name);
            if (found != NULL)
                return found;
        }
        if (link & 1)
            return NULL;
    }
}

static void *find(const struct symbols *symbols, const char *name)
{
    if (symbols->gnu_hash != NULL)
        return find_gnu(symbols, name);
    if (symbols->hash == NULL)
        return NULL;
    for (uint32_t index = 0; index < symbols->hash[1]; index++) {
        void *found = defined(symbols, index, name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static bool is_libc(const char *path)
{
    static const char *const names[] = {"libc.so.6", "libdl.so.2", "ld-musl-", "libc.musl-",
                                        "libc.so"};
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(file, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static const char *const call_names[] = {"dlsym",  "dlvsym", "dlopen", "dlmopen",
                                         "dlinfo", "dladdr", "dlerror"};
enum { CALLS = sizeof call_names / sizeof call_names[0] };
_Static_assert(sizeof(struct libc_calls) == CALLS * sizeof(void *), "a name for every call");

static int fill_from(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    void **found = argument;
    struct symbols symbols;
    if (object->dlpi_name == NULL || !is_libc(object->dlpi_name) || !symbols_open(&symbols, object))
        return 0;
    for (unsigned i = 0; i < CALLS; i++)
        if (found[i] == NULL)
            found[i] = find(&symbols, call_names[i]);
    return 0;
}

const struct libc_calls *libc_calls(void)
{
    static struct libc_calls calls;
    static uint8_t filled;
    if (__atomic_load_n(&filled, __ATOMIC_ACQUIRE))
        return &calls;
    /* Threads that come here together find and store the same addresses. */
    void *found[CALLS] = {NULL};
    dl_iterate_phdr(fill_from, found);
    for (unsigned i = 0; i < CALLS; i++)
        __atomic_store_n((void **)&calls + i, found[i], __ATOMIC_RELAXED);
    __atomic_store_n(&filled, found[0] != NULL, __ATOMIC_RELEASE);
    return &calls;
}
