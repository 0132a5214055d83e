/*
 * Rewrites imports of libraries that RTLD_DEEPBIND or dlmopen have kept out of our reach.
 *
 * A library opened with RTLD_DEEPBIND finds cuMemAlloc in the driver it was linked with before it
 * looks at preloaded ones; a library in another namespace never sees them. Nobody can use such a
 * library before asking dlsym for something in it, so that is where its imports are put right:
 * every slot with the name of a replaced call gets the replacement. In another namespace the other
 * calls of a driver are bound to the driver of the program too, because there is one per process.
 *
 * What this cannot reach is a constructor in such a library that calls CUDA while it is loaded.
 */
#define _GNU_SOURCE
#include "imports.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "libc_symbol.h"
#include "roads.h"

#if defined(__x86_64__)
enum { SLOT_CALL = R_X86_64_JUMP_SLOT, SLOT_DATA = R_X86_64_GLOB_DAT, SLOT_WORD = R_X86_64_64 };
#else
enum {
    SLOT_CALL = R_AARCH64_JUMP_SLOT,
    SLOT_DATA = R_AARCH64_GLOB_DAT,
    SLOT_WORD = R_AARCH64_ABS64
};
#endif

static uint8_t watched;
static unsigned long long loads_seen;

void imports_watch(enum watch what)
{
    __atomic_fetch_or(&watched, (uint8_t)what, __ATOMIC_RELAXED);
    __atomic_store_n(&loads_seen, 0, __ATOMIC_RELAXED);
}

bool imports_watched(enum watch what)
{
    return (__atomic_load_n(&watched, __ATOMIC_RELAXED) & what) != 0;
}

/* An object's imports: its base and what of its dynamic section is needed. */
struct object {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2];
    size_t table_bytes[2];
    uintptr_t read_only_from; /* made read-only after relocation */
    uintptr_t read_only_to;
    bool is_foreign; /* in another namespace */
};

static bool object_read(struct object *object, const ElfW(Dyn) * dynamic)
{
    bool has_addends = true;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = (const void *)dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            object->symbols = address;
            break;
        case DT_STRTAB:
            object->names = address;
            break;
        case DT_RELA:
            object->tables[0] = address;
            break;
        case DT_RELASZ:
            object->table_bytes[0] = dynamic->d_un.d_val;
            break;
        case DT_JMPREL:
            object->tables[1] = address;
            break;
        case DT_PLTRELSZ:
            object->table_bytes[1] = dynamic->d_un.d_val;
            break;
        case DT_PLTREL:
            has_addends = dynamic->d_un.d_val == DT_RELA;
            break;
        default:
            break;
        }
    }
    return has_addends && object->symbols != NULL && object->names != NULL;
}

static bool object_open(struct object *object, ElfW(Addr) base, const ElfW(Phdr) * headers,
                        unsigned header_count, const char *path)
{
    *object = (struct object){.base = base};
    const ElfW(Dyn) *dynamic = NULL;
    for (const ElfW(Phdr) *header = headers; header < headers + header_count; header++) {
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const void *)(base + header->p_vaddr);
        if (header->p_type == PT_GNU_RELRO) {
            object->read_only_from = base + header->p_vaddr;
            object->read_only_to = base + header->p_vaddr + header->p_memsz;
        }
    }
    /* The kernel's own object has unrelocated addresses; a driver calls itself as it likes. */
    return dynamic != NULL && strstr(path, "vdso") == NULL && driver_named(path) == LIBRARIES &&
           object_read(object, dynamic);
}

/* Whether a slot's function has been found yet: until its first call it points into the object. */
static bool address_is_bound(const struct object *object, const void *address)
{
    Dl_info where;
    return libc_calls()->dladdr == NULL || libc_calls()->dladdr(address, &where) == 0 ||
           (ElfW(Addr))where.dli_fbase != object->base;
}

/* What a slot with this name is to hold, or NULL to leave it. */
static void *import_target(const struct object *object, const char *name, const void *present)
{
    const struct libc_calls *libc = libc_calls();
    void *replacement = road_replacement(name);
    if (object->is_foreign && replacement == NULL) {
        const enum library library = strncmp(name, "cu", 2) == 0     ? LIBRARY_DRIVER
                                     : strncmp(name, "nvml", 4) == 0 ? LIBRARY_NVML
                                                                     : LIBRARIES;
        return library != LIBRARIES && driver_load(library)
                   ? libc->dlsym(driver_handle(library), name)
                   : NULL;
    }
    if (object->is_foreign || replacement == NULL)
        return replacement;
    /* Only what goes past us: a wrapper that the library was linked with will call us itself. */
    return road_is_original(present) || !address_is_bound(object, present)
               ? libc->dlsym(RTLD_DEFAULT, name)
               : NULL;
}

static void slot_write(const struct object *object, void **slot, void *value)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot & ~(page - 1));
    const bool is_read_only =
        (uintptr_t)slot >= object->read_only_from && (uintptr_t)slot < object->read_only_to;
    if (is_read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    if (is_read_only)
        mprotect(start, page, PROT_READ);
}

static void object_rewrite(const struct object *object)
{
    for (unsigned i = 0; i < 2; i++) {
        const ElfW(Rela) *entry = object->tables[i];
        const ElfW(Rela) *end = (const void *)((const char *)entry + object->table_bytes[i]);
        for (; entry != NULL && entry < end; entry++) {
            const unsigned type = (unsigned)ELF64_R_TYPE(entry->r_info);
            const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(entry->r_info)];
            /* An import: a symbol that the object itself does not define. */
            if ((type != SLOT_CALL && type != SLOT_DATA && type != SLOT_WORD) ||
                symbol->st_shndx != SHN_UNDEF)
                continue;
            void **slot = (void **)(object->base + entry->r_offset);
            void *target = import_target(object, object->names + symbol->st_name, *slot);
            if (target != NULL && *slot != target)
                slot_write(object, slot, target);
        }
    }
}

static int rewrite_in_program(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    struct object object;
    if (object_open(&object, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, info->dlpi_name))
        object_rewrite(&object);
    return 0;
}

static void rewrite_in_namespace(void *handle)
{
    const struct libc_calls *libc = libc_calls();
    Lmid_t namespace = LM_ID_BASE;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || libc->dlinfo == NULL ||
        libc->dlinfo(handle, RTLD_DI_LMID, &namespace) != 0 || namespace == LM_ID_BASE)
        return;
    struct link_map *map = NULL;
    if (libc->dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL)
        return;
    while (map->l_prev != NULL)
        map = map->l_prev;
    for (; map != NULL; map = map->l_next) {
        const ElfW(Ehdr) *file = (const void *)map->l_addr;
        struct object object;
        if (file == NULL || memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 ||
            !object_open(&object, map->l_addr, (const void *)(map->l_addr + file->e_phoff),
                         file->e_phnum, map->l_name))
            continue;
        object.is_foreign = true;
        object_rewrite(&object);
    }
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *argument)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
        *(unsigned long long *)argument = info->dlpi_adds;
    return 1;
}

void imports_refresh(void *handle)
{
    const uint8_t what = __atomic_load_n(&watched, __ATOMIC_RELAXED);
    if (what == 0)
        return;
    if (what & WATCH_NAMESPACES)
        rewrite_in_namespace(handle);
    unsigned long long loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    if ((what & WATCH_DEEPBIND) && loads != __atomic_load_n(&loads_seen, __ATOMIC_RELAXED)) {
        dl_iterate_phdr(rewrite_in_program, NULL);
        __atomic_store_n(&loads_seen, loads, __ATOMIC_RELAXED);
    }
}
