/*
 * Finds the libraries whose calls are replaced.
 *
 * The originals come from the library's own handle, not from RTLD_NEXT: a program that opened the
 * driver with RTLD_LOCAL (pycuda does) has nothing behind us in the global scope. The handle is
 * kept: unloading the driver under its replacements would leave them calling into nothing.
 */
#define _GNU_SOURCE
#include "driver.h"

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
