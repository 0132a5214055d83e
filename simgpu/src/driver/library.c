/*
 * Libraries: code that is not bound to a context, and becomes a module in each that uses it.
 */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "library.h"

static struct table libraries = TABLE(struct library, 1 << 16);
static struct table kernels = TABLE(struct kernel, 1 << 18);

/* --- objects ------------------------------------------------------------------------------- */

static CUresult library_get(CUlibrary handle, struct library **library)
{
    TRY(driver_check());
    *library = (struct library *)(uintptr_t)handle;
    return table_holds(&libraries, *library) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult kernel_get(CUkernel handle, struct kernel **kernel)
{
    TRY(driver_check());
    *kernel = (struct kernel *)(uintptr_t)handle;
    return table_holds(&kernels, *kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static struct module *module_in(const struct library *library, const struct context *context)
{
    struct module *module = library->modules;
    while (module != NULL && module->context != context)
        module = module->next;
    return module;
}

CUresult library_module(struct library *library, struct context *context, struct module **module)
{
    order_lock();
    struct module *known = module_in(library, context);
    order_unlock();
    if (known != NULL) {
        *module = known;
        return CUDA_SUCCESS;
    }
    TRY(code_check(context->device, library->image));
    struct module *fresh = NULL;
    TRY(module_make(context, library->image, library, &fresh));
    order_lock();
    known = module_in(library, context);
    if (known == NULL) {
        fresh->next = library->modules;
        library->modules = fresh;
    }
    order_unlock();
    if (known != NULL)
        module_free(fresh); /* another thread was faster */
    *module = known != NULL ? known : fresh;
    return CUDA_SUCCESS;
}

static struct kernel *kernel_named(struct library *library, const char *name, CUresult *result)
{
    for (struct kernel *known = library->kernels; known != NULL; known = known->next)
        if (strcmp(known->code->name, name) == 0)
            return known;
    const struct image_function *code = image_find_function(library->image, name);
    struct image_function *own_code = NULL;
    if (code == NULL && library->image->is_opaque)
        code = own_code = opaque_function(name);
    else if (code == NULL)
        *result = CUDA_ERROR_NOT_FOUND;
    struct kernel *fresh = code != NULL ? table_take(&kernels) : NULL;
    if (fresh == NULL) {
        opaque_function_free(own_code);
        return NULL;
    }
    fresh->library = library;
    fresh->code = code;
    fresh->own_code = own_code;
    for (unsigned i = 0; i < SIM_DEVICES; i++)
        settings_reset(&fresh->settings[i]);
    fresh->next = library->kernels;
    library->kernels = fresh;
    return fresh;
}

CUresult kernel_function(CUkernel handle, struct context *context, struct function **function)
{
    struct kernel *kernel = NULL;
    TRY(kernel_get(handle, &kernel));
    order_lock();
    struct function *recent = kernel->recent;
    const bool fits = recent != NULL && function_lives(recent) && recent->kernel == kernel &&
                      recent->context == context;
    order_unlock();
    if (LIKELY(fits)) {
        *function = recent;
        return CUDA_SUCCESS;
    }
    struct module *module = NULL;
    TRY(library_module(kernel->library, context, &module));
    order_lock();
    const CUresult result = module_function(module, kernel->code->name, function);
    if (result == CUDA_SUCCESS) {
        if ((*function)->kernel == NULL) {
            (*function)->kernel = kernel;
            (*function)->settings = kernel->settings[context->device->ordinal];
            function_limit(*function);
        }
        kernel->recent = *function;
    }
    order_unlock();
    return result;
}

/* --- loading and unloading ----------------------------------------------------------------- */

static unsigned best_capability(void)
{
    unsigned best = 0;
    for (unsigned i = 0; i < driver.device_count; i++) {
        const struct sim_profile *profile = driver.devices[i].profile;
        const unsigned capability = profile->compute_major * 10 + profile->compute_minor;
        best = capability > best ? capability : best;
    }
    return best;
}

static CUresult load(CUlibrary *handle, const void *data, size_t bytes)
{
    struct image *image = NULL;
    TRY(image_read(data, bytes, best_capability(), &image));
    order_lock();
    struct library *library = table_take(&libraries);
    if (library != NULL) {
        library->image = image;
        *handle = (CUlibrary)(uintptr_t)library;
    }
    order_unlock();
    if (library == NULL)
        image_release(image);
    return library != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check_options(const CUlibraryOption *options, void *const *values, unsigned count)
{
    REQUIRE(count == 0 || (options != NULL && values != NULL));
    for (unsigned i = 0; i < count; i++)
        REQUIRE((unsigned)options[i] < CU_LIBRARY_NUM_OPTIONS);
    return CUDA_SUCCESS;
}

ENTRY cuLibraryLoadData(CUlibrary *handle, const void *code, CUjit_option *options, void **values,
                        unsigned option_count, CUlibraryOption *library_options,
                        void **library_values, unsigned library_option_count)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && code != NULL);
    TRY(jit_check(option_count, options, values));
    TRY(check_options(library_options, library_values, library_option_count));
    const CUresult result = load(handle, code, 0);
    jit_report(option_count, options, values, result);
    return result;
}

ENTRY cuLibraryLoadFromFile(CUlibrary *handle, const char *path, CUjit_option *options,
                            void **values, unsigned option_count, CUlibraryOption *library_options,
                            void **library_values, unsigned library_option_count)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && path != NULL);
    TRY(jit_check(option_count, options, values));
    TRY(check_options(library_options, library_values, library_option_count));
    void *data = NULL;
    size_t bytes = 0;
    TRY(image_load_file(path, &data, &bytes));
    const CUresult result = bytes > 0 ? load(handle, data, bytes) : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    jit_report(option_count, options, values, result);
    return result;
}

ENTRY cuLibraryUnload(CUlibrary handle)
{
    struct library *library = NULL;
    TRY(library_get(handle, &library));
    TRY(capture_refuse_unsafe());
    order_lock();
    if (!table_holds(&libraries, library)) {
        order_unlock();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct module *module = library->modules;
    struct image *image = library->image;
    while (library->kernels != NULL) {
        struct kernel *kernel = library->kernels;
        library->kernels = kernel->next;
        opaque_function_free(kernel->own_code);
        table_give(&kernels, kernel);
    }
    table_give(&libraries, library);
    order_unlock();
    while (module != NULL) {
        struct module *next = module->next;
        streams_wait(module->context);
        module_free(module);
        module = next;
    }
    image_release(image);
    return CUDA_SUCCESS;
}

/* A context ends: its modules are gone, the libraries stay. */
static void forget_context(void *object, void *context)
{
    struct library *library = object;
    struct module **link = &library->modules;
    while (*link != NULL && (*link)->context != context)
        link = &(*link)->next;
    if (*link != NULL)
        *link = (*link)->next;
}

void libraries_close(struct context *context)
{
    table_each(&libraries, forget_context, context);
}

void libraries_forget(void)
{
    table_forget(&libraries);
    table_forget(&kernels);
}

/* --- what is in a library ------------------------------------------------------------------ */

ENTRY cuLibraryGetKernel(CUkernel *handle, CUlibrary library_handle, const char *name)
{
    struct library *library = NULL;
    TRY(library_get(library_handle, &library));
    REQUIRE(handle != NULL && name != NULL);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    order_lock();
    struct kernel *kernel = kernel_named(library, name, &result);
    order_unlock();
    if (kernel == NULL)
        return result;
    *handle = (CUkernel)(uintptr_t)kernel;
    return CUDA_SUCCESS;
}

ENTRY cuLibraryGetKernelCount(unsigned *count, CUlibrary handle)
{
    struct library *library = NULL;
    TRY(library_get(handle, &library));
    REQUIRE(count != NULL);
    *count = (unsigned)library->image->function_count;
    return CUDA_SUCCESS;
}

ENTRY cuLibraryEnumerateKernels(CUkernel *handles, unsigned count, CUlibrary handle)
{
    struct library *library = NULL;
    TRY(library_get(handle, &library));
    REQUIRE(handles != NULL && count > 0);
    CUresult result = CUDA_SUCCESS;
    order_lock();
    for (unsigned i = 0; i < count && i < library->image->function_count; i++) {
        CUresult failure = CUDA_ERROR_OUT_OF_MEMORY;
        struct kernel *kernel = kernel_named(library, library->image->functions[i].name, &failure);
        if (kernel == NULL) {
            result = failure;
            break;
        }
        handles[i] = (CUkernel)(uintptr_t)kernel;
    }
    order_unlock();
    return result;
}

/* The module of a library in the current context. */
static CUresult current_module(CUlibrary handle, struct module **module)
{
    ENTER(context);
    struct library *library = NULL;
    TRY(library_get(handle, &library));
    return library_module(library, context, module);
}

ENTRY cuLibraryGetModule(CUmodule *handle, CUlibrary library_handle)
{
    REQUIRE(handle != NULL);
    struct module *module = NULL;
    TRY(current_module(library_handle, &module));
    *handle = (CUmodule)(uintptr_t)module;
    return CUDA_SUCCESS;
}

ENTRY cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
    REQUIRE(name != NULL);
    struct module *module = NULL;
    TRY(current_module(handle, &module));
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)(uintptr_t)module, name);
}

ENTRY cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
    REQUIRE(name != NULL);
    struct module *module = NULL;
    TRY(current_module(handle, &module));
    const struct image_global *global = image_find_global(module->image, name);
    if (global == NULL || !global->is_managed)
        return CUDA_ERROR_NOT_FOUND;
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)(uintptr_t)module, name);
}

/* Functions that host and device share have no addresses here. */
ENTRY cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *symbol)
{
    struct library *library = NULL;
    TRY(library_get(handle, &library));
    REQUIRE(function != NULL && symbol != NULL);
    return CUDA_ERROR_NOT_FOUND;
}
