/*
 * Modules: images in a context, their functions and their global variables.
 */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "jit.h"
#include "launch.h"

static struct table modules = TABLE(struct module, 1 << 16);
static struct table functions = TABLE(struct function, 1 << 18);
static uint64_t last_serial;

/* --- making -------------------------------------------------------------------------------- */

CUresult code_check(const struct device *device, const struct image *image)
{
    const unsigned major = device->profile->compute_major;
    const unsigned capability = major * 10 + device->profile->compute_minor;
    if (image->is_opaque)
        return CUDA_SUCCESS;
    if (image->ptx_version == 0)
        return image->target <= capability && image->target / 10 == major
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_NO_BINARY_FOR_GPU;
    /* PTX 9 came with CUDA 13, PTX 8 with CUDA 12. */
    if (image->ptx_version / 10 + 4 > driver.node->cuda_version / 1000)
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    return image->target <= capability ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

CUresult code_read(const struct device *device, const void *data, size_t bytes,
                   struct image **image)
{
    const unsigned capability =
        device->profile->compute_major * 10 + device->profile->compute_minor;
    struct image *read = NULL;
    TRY(image_read(data, bytes, capability, &read));
    const CUresult result = code_check(device, read);
    if (result != CUDA_SUCCESS)
        image_release(read);
    else
        *image = read;
    return result;
}

/* Device addresses are this process's own, so the initial values are simply written. */
static void write_globals(const struct module *module)
{
    if (module->data == 0 || driver.null_mode)
        return;
    char *data = (char *)(uintptr_t)module->data;
    memset(data, 0, module->image->data_bytes);
    for (size_t i = 0; i < module->image->global_count; i++) {
        const struct image_global *global = &module->image->globals[i];
        if (global->initial_bytes > 0)
            memcpy(data + global->offset, global->initial, global->initial_bytes);
    }
}

CUresult module_make(struct context *context, struct image *image, struct library *library,
                     struct module **module)
{
    CUdeviceptr data = 0;
    if (image->data_bytes > 0)
        TRY(memory_allocate(context, image->data_bytes, &data));
    order_lock();
    struct module *fresh = table_take(&modules);
    if (fresh != NULL) {
        image_hold(image);
        fresh->context = context;
        fresh->library = library;
        fresh->image = image;
        fresh->data = data;
    }
    order_unlock();
    if (fresh == NULL) {
        memory_free(context, data);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    write_globals(fresh);
    *module = fresh;
    return CUDA_SUCCESS;
}

bool module_lives(const struct module *module)
{
    return table_holds(&modules, module);
}

bool function_lives(const struct function *function)
{
    return table_holds(&functions, function);
}

struct image_function *opaque_function(const char *name)
{
    struct image_function *code = calloc(1, sizeof *code);
    if (code != NULL && (code->name = strdup(name)) == NULL) {
        free(code);
        code = NULL;
    }
    if (code != NULL)
        code->parameters_unknown = true;
    return code;
}

void opaque_function_free(struct image_function *code)
{
    if (code != NULL)
        free(code->name);
    free(code);
}

CUresult module_function(struct module *module, const char *name, struct function **function)
{
    for (struct function *known = module->functions; known != NULL; known = known->next) {
        if (strcmp(known->code->name, name) == 0) {
            *function = known;
            return CUDA_SUCCESS;
        }
    }
    const struct image_function *code = image_find_function(module->image, name);
    struct image_function *own_code = NULL;
    if (code == NULL) {
        if (!module->image->is_opaque)
            return CUDA_ERROR_NOT_FOUND;
        code = own_code = opaque_function(name);
    }
    struct function *fresh = code != NULL ? table_take(&functions) : NULL;
    if (fresh == NULL) {
        opaque_function_free(own_code);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->context = module->context;
    fresh->module = module;
    fresh->code = code;
    fresh->own_code = own_code;
    fresh->serial = ++last_serial;
    settings_reset(&fresh->settings);
    function_limit(fresh);
    timing_of(code->name, fresh);
    fresh->next = module->functions;
    module->functions = fresh;
    *function = fresh;
    return CUDA_SUCCESS;
}

CUresult function_get(struct context *context, CUfunction handle, struct function **function)
{
    struct function *named = (struct function *)(uintptr_t)handle;
    if (LIKELY(table_holds(&functions, named))) {
        *function = named;
        return CUDA_SUCCESS;
    }
    return kernel_function((CUkernel)(uintptr_t)handle, context, function);
}

/* --- ending -------------------------------------------------------------------------------- */

static void end_functions(struct module *module)
{
    while (module->functions != NULL) {
        struct function *function = module->functions;
        module->functions = function->next;
        opaque_function_free(function->own_code);
        free(function->old);
        table_give(&functions, function);
    }
}

void module_free(struct module *module)
{
    order_lock();
    if (!module_lives(module)) {
        order_unlock();
        return;
    }
    struct context *context = module->context;
    struct image *image = module->image;
    const CUdeviceptr data = module->data;
    end_functions(module);
    table_give(&modules, module);
    order_unlock();
    if (data != 0)
        memory_free(context, data);
    image_release(image);
}

static void close_one(void *object, void *context)
{
    struct module *module = object;
    if (module->context != context)
        return;
    end_functions(module);
    image_release(module->image);
    table_give(&modules, module);
}

void modules_close(struct context *context)
{
    table_each(&modules, close_one, context);
}

void modules_forget(void)
{
    table_forget(&modules);
    table_forget(&functions);
}

/* --- entries ------------------------------------------------------------------------------- */

static CUresult load(CUmodule *handle, const void *data, size_t bytes)
{
    ENTER(context);
    REQUIRE(handle != NULL && data != NULL);
    TRY(capture_refuse_unsafe());
    struct image *image = NULL;
    struct module *module = NULL;
    TRY(code_read(context->device, data, bytes, &image));
    const CUresult result = module_make(context, image, NULL, &module);
    image_release(image);
    if (result == CUDA_SUCCESS)
        *handle = (CUmodule)(uintptr_t)module;
    return result;
}

ENTRY cuModuleLoadData(CUmodule *handle, const void *data)
{
    return load(handle, data, 0);
}

ENTRY cuModuleLoadFatBinary(CUmodule *handle, const void *data)
{
    return load(handle, data, 0);
}

ENTRY cuModuleLoadDataEx(CUmodule *handle, const void *data, unsigned option_count,
                         CUjit_option *options, void **values)
{
    TRY(driver_check());
    TRY(jit_check(option_count, options, values));
    const CUresult result = load(handle, data, 0);
    jit_report(option_count, options, values, result);
    return result;
}

ENTRY cuModuleLoad(CUmodule *handle, const char *path)
{
    ENTER(context);
    (void)context;
    REQUIRE(handle != NULL && path != NULL);
    void *data = NULL;
    size_t bytes = 0;
    TRY(image_load_file(path, &data, &bytes));
    const CUresult result = bytes > 0 ? load(handle, data, bytes) : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    return result;
}

/* A module knows its context, which need not be current. */
static CUresult get(CUmodule handle, struct module **module)
{
    TRY(driver_check());
    *module = (struct module *)(uintptr_t)handle;
    return module_lives(*module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

ENTRY cuModuleUnload(CUmodule handle)
{
    struct module *module = NULL;
    TRY(get(handle, &module));
    if (module->library != NULL)
        return CUDA_ERROR_NOT_PERMITTED;
    TRY(capture_refuse_unsafe());
    TRY(streams_wait(module->context));
    module_free(module);
    return CUDA_SUCCESS;
}

ENTRY cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name)
{
    struct module *module = NULL;
    TRY(get(module_handle, &module));
    REQUIRE(handle != NULL && name != NULL);
    struct function *function = NULL;
    order_lock();
    const CUresult result = module_function(module, name, &function);
    order_unlock();
    if (result == CUDA_SUCCESS)
        *handle = (CUfunction)(uintptr_t)function;
    return result;
}

ENTRY cuModuleGetFunctionCount(unsigned *count, CUmodule handle)
{
    struct module *module = NULL;
    TRY(get(handle, &module));
    REQUIRE(count != NULL);
    *count = (unsigned)module->image->function_count;
    return CUDA_SUCCESS;
}

ENTRY cuModuleEnumerateFunctions(CUfunction *handles, unsigned count, CUmodule handle)
{
    struct module *module = NULL;
    TRY(get(handle, &module));
    REQUIRE(handles != NULL && count > 0);
    CUresult result = CUDA_SUCCESS;
    order_lock();
    for (unsigned i = 0; i < count && i < module->image->function_count; i++) {
        struct function *function = NULL;
        result = module_function(module, module->image->functions[i].name, &function);
        if (result != CUDA_SUCCESS)
            break;
        handles[i] = (CUfunction)(uintptr_t)function;
    }
    order_unlock();
    return result;
}

ENTRY cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
    struct module *module = NULL;
    TRY(get(handle, &module));
    REQUIRE(name != NULL);
    const struct image_global *global = image_find_global(module->image, name);
    if (global == NULL)
        return CUDA_ERROR_NOT_FOUND;
    if (address != NULL)
        *address = module->data + global->offset;
    if (bytes != NULL)
        *bytes = global->bytes;
    return CUDA_SUCCESS;
}

ENTRY cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    TRY(driver_check());
    REQUIRE(mode != NULL);
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    *mode = wanted != NULL && strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                           : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
