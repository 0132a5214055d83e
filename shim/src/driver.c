/*
 * Finds the libraries whose calls are replaced.
 *
 * The originals come from the library's own handle, not from RTLD_NEXT: a program that opened the
 * driver with RTLD_LOCAL (pycuda does) has nothing behind us in the global scope. The handle is
 * kept: unloading the driver under its replacements would leave them calling into nothing.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <elf.h>
#include <link.h>

#include "libc_symbol.h"

static const char *const sonames[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};

static void *handles[LIBRARIES];

/* Stand-ins for what a library is too old to have; the arguments do not matter. */
static CUresult absent_call(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t absent_query(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* Threads that bind together store the same addresses, so none has to wait for the other. */
static bool bind(enum library library, int flags)
{
    const struct libc_calls *libc = libc_calls();
    if (libc->dlopen == NULL || libc->dlsym == NULL || libc->dlerror == NULL)
        return false;
    void *handle = libc->dlopen(sonames[library], RTLD_LAZY | flags);
    if (handle == NULL)
        return false;
    for (const struct row *row = rows; row < rows + row_count; row++) {
        if (row->library != library)
            continue;
        void *original = libc->dlsym(handle, row->symbol);
        /* Our own replacement handed back as the original would call itself for ever. */
        if (original == NULL || original == row->replacement)
            original = library == LIBRARY_DRIVER ? (void *)absent_call : (void *)absent_query;
        __atomic_store_n(row->original, original, __ATOMIC_RELAXED);
    }
    /* Programs ask dlerror whether their own dlsym worked; what we did not find is not an answer.
     */
    libc->dlerror();
    __atomic_store_n(&handles[library], handle, __ATOMIC_RELEASE);
    return true;
}

bool driver_bound(enum library library)
{
    return __atomic_load_n(&handles[library], __ATOMIC_ACQUIRE) != NULL ||
           bind(library, RTLD_NOLOAD);
}

bool driver_load(enum library library)
{
    return driver_bound(library) || bind(library, 0);
}

void *driver_handle(enum library library)
{
    return __atomic_load_n(&handles[library], __ATOMIC_ACQUIRE);
}

enum library driver_named(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash == NULL ? file : slash + 1;
    for (enum library library = 0; library < LIBRARIES; library++)
        /* Without the major version: libcuda.so is a link to it where development files are. */
        if (strncmp(name, sonames[library], strlen(sonames[library]) - 2) == 0)
            return library;
    return LIBRARIES;
}

/* What a loaded object calls itself; NULL when it does not. */
static const char *soname_of(const void *base)
{
    const ElfW(Ehdr) *file = base;
    if (memcmp(file->e_ident, ELFMAG, SELFMAG) != 0)
        return NULL;
    const ElfW(Phdr) *headers = (const void *)((const char *)base + file->e_phoff);
    const ElfW(Dyn) *dynamic = NULL;
    for (unsigned i = 0; i < file->e_phnum; i++)
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)((const char *)base + headers[i].p_vaddr);
    const char *names = NULL;
    size_t soname = 0;
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_STRTAB)
            names = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SONAME)
            soname = dynamic->d_un.d_val;
    }
    return names == NULL || soname == 0 ? NULL : names + soname;
}

enum library driver_around(const void *address)
{
    const struct libc_calls *libc = libc_calls();
    Dl_info where;
    if (libc->dladdr == NULL || libc->dladdr(address, &where) == 0 || where.dli_fbase == NULL)
        return LIBRARIES;
    const char *soname = soname_of(where.dli_fbase);
    return soname == NULL ? LIBRARIES : driver_named(soname);
}
