/*
 * Code and globals of modules and libraries.
 *
 * Their size in device memory is not told: it is seen around the calls that load them. Drivers load
 * lazily, so asking for a function or a global counts as loading too. What a library takes is taken
 * anew in every context, and ends with it.
 */
#include "allocations.h"
#include "device.h"
#include "overhead.h"

/* More than that at one glance is a neighbour's, unless NVML says that it is ours. */
#define PLAUSIBLE_BYTES (UINT64_C(64) << 20)

/* Begins to watch a call that may load something in the current context. */
static bool watch(struct look *before)
{
    const int device = device_current();
    if (device < 0)
        return false;
    overhead_glance(before, device);
    return true;
}

static uint64_t growth_since(const struct look *before)
{
    struct look after;
    overhead_glance(&after, before->device);
    const uint64_t growth = overhead_growth(before, &after, UINT64_MAX, 0);
    if (growth <= PLAUSIBLE_BYTES || overhead_confirms(before->device, growth))
        return growth;
    return PLAUSIBLE_BYTES;
}

/* Charges a growth to a module; false: it does not fit. */
static bool charge_module(const struct look *before, uint64_t key)
{
    const uint64_t growth = growth_since(before);
    if (growth == 0)
        return true;
    if (!charge_take(before->device, growth))
        return false;
    allocation_grow(KIND_MODULE, key, growth, before->device, thread.owner);
    return true;
}

/* What was loaded lazily is there and stays, whether it fits or not. */
static void charge_lazily(const struct look *before, uint64_t key)
{
    const uint64_t growth = growth_since(before);
    if (growth == 0)
        return;
    ledger_force((unsigned)before->device, growth);
    allocation_grow(KIND_MODULE, key, growth, before->device, thread.owner);
}

/* A library in one of its contexts. */
static uint64_t library_key(CUlibrary library, uint64_t context)
{
    return (uintptr_t)library ^ context * UINT64_C(0x9e3779b97f4a7c15);
}

static void end(uint64_t key)
{
    struct allocation module;
    if (allocation_leave(KIND_MODULE, key, &module) != STANDING_NONE)
        charge_return(module.device, module.bytes);
}

/* --- loading --------------------------------------------------------------------------------- */

#define LOADS(name, key, undo, parameters, ...)                                                    \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        struct look before;                                                                        \
        if (!watch(&before))                                                                       \
            return real.name(__VA_ARGS__);                                                         \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result != CUDA_SUCCESS || charge_module(&before, key))                                 \
            return result;                                                                         \
        undo;                                                                                      \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }
#define LOADS_MODULE(name, parameters, ...)                                                        \
    LOADS(name, (uintptr_t)*module, (void)REAL(cuModuleUnload, *module), parameters, __VA_ARGS__)
#define LOADS_LIBRARY(name, parameters, ...)                                                       \
    LOADS(name, library_key(*library, thread.owner), (void)REAL(cuLibraryUnload, *library),        \
          parameters, __VA_ARGS__)

LOADS_MODULE(cuModuleLoad, (CUmodule * module, const char *path), module, path)
LOADS_MODULE(cuModuleLoadData, (CUmodule * module, const void *image), module, image)
LOADS_MODULE(cuModuleLoadDataEx,
             (CUmodule * module, const void *image, unsigned count, CUjit_option *options,
              void **values),
             module, image, count, options, values)
LOADS_MODULE(cuModuleLoadFatBinary, (CUmodule * module, const void *image), module, image)
LOADS_LIBRARY(cuLibraryLoadData,
              (CUlibrary * library, const void *code, CUjit_option *jit_options, void **jit_values,
               unsigned jit_count, CUlibraryOption *options, void **values, unsigned count),
              library, code, jit_options, jit_values, jit_count, options, values, count)
LOADS_LIBRARY(cuLibraryLoadFromFile,
              (CUlibrary * library, const char *path, CUjit_option *jit_options, void **jit_values,
               unsigned jit_count, CUlibraryOption *options, void **values, unsigned count),
              library, path, jit_options, jit_values, jit_count, options, values, count)

/* --- loading lazily -------------------------------------------------------------------------- */

static uint64_t key_of_kernel(CUkernel kernel)
{
    CUlibrary library = NULL;
    return real.cuKernelGetLibrary(&library, kernel) == CUDA_SUCCESS
               ? library_key(library, thread.owner)
               : (uintptr_t)kernel;
}

static uint64_t key_of_function(CUfunction function)
{
    CUmodule module = NULL;
    return real.cuFuncGetModule(&module, function) == CUDA_SUCCESS ? (uintptr_t)module
                                                                   : (uintptr_t)function;
}

#define LOADS_LAZILY(name, key, parameters, ...)                                                   \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        struct look before;                                                                        \
        if (!watch(&before))                                                                       \
            return real.name(__VA_ARGS__);                                                         \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        charge_lazily(&before, key);                                                               \
        return result;                                                                             \
    }
LOADS_LAZILY(cuModuleGetFunction, (uintptr_t)module,
             (CUfunction * function, CUmodule module, const char *name_), function, module, name_)
LOADS_LAZILY(cuModuleGetGlobal, (uintptr_t)module,
             (CUdeviceptr_v1 * address, unsigned *bytes, CUmodule module, const char *name_),
             address, bytes, module, name_)
LOADS_LAZILY(cuModuleGetGlobal_v2, (uintptr_t)module,
             (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name_), address,
             bytes, module, name_)
LOADS_LAZILY(cuLibraryGetModule, library_key(library, thread.owner),
             (CUmodule * module, CUlibrary library), module, library)
LOADS_LAZILY(cuLibraryGetGlobal, library_key(library, thread.owner),
             (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name_), address,
             bytes, library, name_)
LOADS_LAZILY(cuLibraryGetManaged, library_key(library, thread.owner),
             (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name_), address,
             bytes, library, name_)
LOADS_LAZILY(cuKernelGetFunction, key_of_kernel(kernel), (CUfunction * function, CUkernel kernel),
             function, kernel)
LOADS_LAZILY(cuFuncLoad, key_of_function(function), (CUfunction function), function)

/* --- unloading ------------------------------------------------------------------------------- */

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    ENTER(cuModuleUnload, module);
    const CUresult result = REAL(cuModuleUnload, module);
    if (result == CUDA_SUCCESS)
        end((uintptr_t)module);
    return result;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER(cuLibraryUnload, library);
    const CUresult result = REAL(cuLibraryUnload, library);
    if (result != CUDA_SUCCESS)
        return result;
    for (CUdevice ordinal = 0; ordinal < DEVICES_MOST; ordinal++)
        end(library_key(library, device_primary(ordinal)));
    if (device_current() >= 0)
        end(library_key(library, thread.owner));
    return result;
}
