/*
 * The dynamic linker's own calls, overridden: every road to a function by its name.
 *
 * dlsym and dlopen look at who calls them: RTLD_NEXT means "after the caller", a file name is
 * searched along the caller's RUNPATH. An override that calls the original and looks at its answer
 * would make itself the caller. So each entry is a few instructions that ask a C function for an
 * answer and, when it has none, jump to the original with the caller's return address in place.
 */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#include "driver.h"
#include "imports.h"
#include "libc_symbol.h"
#include "roads.h"

/* In two registers: go on in the original, or (NULL) return the answer. */
struct verdict {
    void *answer;
    void *go_on_in;
};

#define HIDDEN __attribute__((visibility("hidden"), used))

#if defined(__x86_64__)
#define OVERRIDE(name)                                                                             \
    __asm__(".text\n"                                                                              \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", @function\n" #name ":\n"                                             \
            ".cfi_startproc\n"                                                                     \
            "    endbr64\n"                                                                        \
            "    push %rdi\n.cfi_adjust_cfa_offset 8\n"                                            \
            "    push %rsi\n.cfi_adjust_cfa_offset 8\n"                                            \
            "    push %rdx\n.cfi_adjust_cfa_offset 8\n"                                            \
            "    call verdict_" #name "\n"                                                         \
            "    mov %rdx, %rcx\n"                                                                 \
            "    pop %rdx\n.cfi_adjust_cfa_offset -8\n"                                            \
            "    pop %rsi\n.cfi_adjust_cfa_offset -8\n"                                            \
            "    pop %rdi\n.cfi_adjust_cfa_offset -8\n"                                            \
            "    test %rcx, %rcx\n"                                                                \
            "    jz 1f\n"                                                                          \
            "    jmp *%rcx\n"                                                                      \
            "1:  ret\n"                                                                            \
            ".cfi_endproc\n"                                                                       \
            ".size " #name ", . - " #name "\n")
#elif defined(__aarch64__)
#define OVERRIDE(name)                                                                             \
    __asm__(".text\n"                                                                              \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", %function\n" #name ":\n"                                             \
            ".cfi_startproc\n"                                                                     \
            "    hint #34\n" /* bti c */                                                           \
            "    stp x29, x30, [sp, #-48]!\n.cfi_def_cfa_offset 48\n"                              \
            ".cfi_offset x29, -48\n.cfi_offset x30, -40\n"                                         \
            "    mov x29, sp\n"                                                                    \
            "    stp x0, x1, [sp, #16]\n"                                                          \
            "    str x2, [sp, #32]\n"                                                              \
            "    bl verdict_" #name "\n"                                                           \
            "    mov x17, x0\n"                                                                    \
            "    mov x16, x1\n"                                                                    \
            "    ldp x0, x1, [sp, #16]\n"                                                          \
            "    ldr x2, [sp, #32]\n"                                                              \
            "    ldp x29, x30, [sp], #48\n"                                                        \
            ".cfi_restore x29\n.cfi_restore x30\n.cfi_def_cfa_offset 0\n"                          \
            "    cbz x16, 1f\n"                                                                    \
            "    br x16\n"                                                                         \
            "1:  mov x0, x17\n"                                                                    \
            "    ret\n"                                                                            \
            ".cfi_endproc\n"                                                                       \
            ".size " #name ", . - " #name "\n")
#else
#error "the overrides are written for x86-64 and aarch64"
#endif

OVERRIDE(dlsym);
OVERRIDE(dlvsym);
OVERRIDE(dlopen);
OVERRIDE(dlmopen);

static struct verdict go_on(void *original)
{
    return (struct verdict){.go_on_in = original};
}

static struct verdict answer(void *found)
{
    return (struct verdict){.answer = found};
}

/* The linker's own calls are replaced like the driver's, or asking for dlsym would be a way round.
 */
static void *own_override(const char *name)
{
    static const struct {
        const char *name;
        void *override;
    } overrides[] = {{"dlsym", (void *)dlsym},
                     {"dlvsym", (void *)dlvsym},
                     {"dlopen", (void *)dlopen},
                     {"dlmopen", (void *)dlmopen}};
    for (unsigned i = 0; i < sizeof overrides / sizeof overrides[0]; i++)
        if (strcmp(name, overrides[i].name) == 0)
            return overrides[i].override;
    return NULL;
}

static bool may_be_replaced(const char *name)
{
    return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'd' && name[1] == 'l') ||
           strncmp(name, "nvml", 4) == 0;
}

void *road_replacement(const char *name)
{
    if (!may_be_replaced(name))
        return NULL;
    const struct row *row = row_named(name);
    return row != NULL ? row->replacement : own_override(name);
}

static bool is_of_libc(const struct libc_calls *libc, const void *address)
{
    return address != NULL && (address == (void *)libc->dlsym || address == (void *)libc->dlvsym ||
                               address == (void *)libc->dlopen || address == (void *)libc->dlmopen);
}

bool road_is_original(const void *address)
{
    return is_of_libc(libc_calls(), address) ||
           ((driver_bound(LIBRARY_DRIVER) || driver_bound(LIBRARY_NVML)) &&
            row_of(address, "") != NULL);
}

/* A function that is not replaced, but may be one of a second driver in another namespace. */
static void *in_the_programs_driver(const struct libc_calls *libc, void *found, const char *name)
{
    const enum library library = driver_around(found);
    return library != LIBRARIES && driver_load(library) ? libc->dlsym(driver_handle(library), name)
                                                        : found;
}

/* `version` is NULL for dlsym. */
static struct verdict find(void *handle, const char *name, const char *version)
{
    const struct libc_calls *libc = libc_calls();
    void *original = version == NULL ? (void *)libc->dlsym : (void *)libc->dlvsym;
    if (original == NULL || libc->dlsym == NULL)
        return answer(NULL);
    imports_refresh(handle);
    if (name == NULL || !may_be_replaced(name))
        return go_on(original);
    const struct row *row = row_named(name);
    void *replacement = row != NULL ? row->replacement : own_override(name);
    const bool by_scope = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
    if (replacement == NULL && (by_scope || !imports_watched(WATCH_NAMESPACES)))
        return go_on(original);
    void *found = by_scope          ? replacement
                  : version == NULL ? libc->dlsym(handle, name)
                                    : libc->dlvsym(handle, name, version);
    if (found == NULL)
        return answer(NULL);
    if (replacement == NULL)
        return answer(in_the_programs_driver(libc, found, name));
    if (row == NULL)
        return answer(is_of_libc(libc, found) ? replacement : found);
    if (found == replacement) {
        /* Our own export: what it replaces must be there too, or the name does not exist. */
        if (driver_bound(row->library))
            return answer(found);
        return answer(libc->dlsym(RTLD_NEXT, name));
    }
    if ((driver_bound(row->library) && found == *row->original) ||
        (driver_around(found) == row->library && driver_load(row->library)))
        return answer(replacement);
    return answer(found);
}

HIDDEN struct verdict verdict_dlsym(void *handle, const char *name)
{
    return find(handle, name, NULL);
}

HIDDEN struct verdict verdict_dlvsym(void *handle, const char *name, const char *version)
{
    return find(handle, name, version == NULL ? "" : version);
}

/*
 * One driver per process: a second copy, under another path or in another namespace, would have
 * contexts of its own that the first one's functions know nothing of. Whoever asks for a driver
 * when there is one gets that one.
 */
static struct verdict open_driver(const char *file, int flags, bool from_here)
{
    const struct libc_calls *libc = libc_calls();
    const enum library library = driver_named(file);
    if (driver_bound(library))
        return answer(libc->dlopen(library == LIBRARY_DRIVER ? "libcuda.so.1" : "libnvidia-ml.so.1",
                                   flags & ~RTLD_DEEPBIND));
    return from_here ? answer(libc->dlopen(file, flags)) : go_on((void *)libc->dlopen);
}

HIDDEN struct verdict verdict_dlopen(const char *file, int flags)
{
    const struct libc_calls *libc = libc_calls();
    if (libc->dlopen == NULL || libc->dlerror == NULL)
        return answer(NULL);
    if (flags & RTLD_DEEPBIND)
        imports_watch(WATCH_DEEPBIND);
    if (file != NULL && driver_named(file) != LIBRARIES)
        return open_driver(file, flags, imports_watched(WATCH_NAMESPACES));
    return go_on((void *)libc->dlopen);
}

HIDDEN struct verdict verdict_dlmopen(Lmid_t namespace, const char *file, int flags)
{
    const struct libc_calls *libc = libc_calls();
    if (libc->dlmopen == NULL || libc->dlopen == NULL || libc->dlerror == NULL)
        return answer(NULL);
    if (flags & RTLD_DEEPBIND)
        imports_watch(WATCH_DEEPBIND);
    if (namespace != LM_ID_BASE) {
        if (file != NULL && driver_named(file) != LIBRARIES)
            return open_driver(file, flags, true);
        imports_watch(WATCH_NAMESPACES);
    }
    return go_on((void *)libc->dlmopen);
}
