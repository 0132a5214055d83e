/*
 * Kernels of libraries: what can be asked about them and set on them, device by device.
 */
#include "library.h"

ENTRY cuKernelGetFunction(CUfunction *handle, CUkernel kernel_handle)
{
    ENTER(context);
    REQUIRE(handle != NULL);
    struct function *function = NULL;
    TRY(kernel_function(kernel_handle, context, &function));
    *handle = (CUfunction)(uintptr_t)function;
    return CUDA_SUCCESS;
}

ENTRY cuKernelGetLibrary(CUlibrary *handle, CUkernel kernel_handle)
{
    struct kernel *kernel = NULL;
    TRY(kernel_get(kernel_handle, &kernel));
    REQUIRE(handle != NULL);
    *handle = (CUlibrary)(uintptr_t)kernel->library;
    return CUDA_SUCCESS;
}

ENTRY cuKernelGetName(const char **name, CUkernel handle)
{
    REQUIRE(name != NULL);
    struct kernel *kernel = NULL;
    TRY(kernel_get(handle, &kernel));
    *name = kernel->code->name;
    return CUDA_SUCCESS;
}

ENTRY cuKernelGetParamCount(CUkernel handle, size_t *count)
{
    REQUIRE(count != NULL);
    struct kernel *kernel = NULL;
    TRY(kernel_get(handle, &kernel));
    *count = kernel->code->parameter_count;
    return CUDA_SUCCESS;
}

ENTRY cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes)
{
    REQUIRE(offset != NULL);
    struct kernel *kernel = NULL;
    TRY(kernel_get(handle, &kernel));
    REQUIRE(index < kernel->code->parameter_count);
    *offset = kernel->code->parameters[index].offset;
    if (bytes != NULL)
        *bytes = kernel->code->parameters[index].bytes;
    return CUDA_SUCCESS;
}

/* The settings of a kernel on a device. */
static CUresult settings_of(CUkernel handle, CUdevice ordinal, struct kernel **kernel,
                            struct device **device, struct function_settings **settings)
{
    TRY(device_get(ordinal, device));
    TRY(kernel_get(handle, kernel));
    *settings = &(*kernel)->settings[ordinal];
    return CUDA_SUCCESS;
}

/* Functions of the kernel that exist already get the new settings, too. */
static void apply(const struct kernel *kernel, const struct device *device,
                  const struct function_settings *settings)
{
    order_lock();
    for (struct module *module = kernel->library->modules; module != NULL; module = module->next) {
        if (module->context->device != device)
            continue;
        for (struct function *function = module->functions; function != NULL;
             function = function->next) {
            if (function->kernel != kernel)
                continue;
            function->settings = *settings;
            function_limit(function);
        }
    }
    order_unlock();
}

ENTRY cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle,
                           CUdevice ordinal)
{
    struct kernel *kernel = NULL;
    struct device *device = NULL;
    struct function_settings *settings = NULL;
    TRY(settings_of(handle, ordinal, &kernel, &device, &settings));
    REQUIRE(value != NULL);
    return code_attribute(kernel->library->image, kernel->code, settings, device, attribute, value);
}

ENTRY cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                           CUdevice ordinal)
{
    struct kernel *kernel = NULL;
    struct device *device = NULL;
    struct function_settings *settings = NULL;
    TRY(settings_of(handle, ordinal, &kernel, &device, &settings));
    TRY(settings_set(settings, kernel->code, device, attribute, value));
    apply(kernel, device, settings);
    return CUDA_SUCCESS;
}

ENTRY cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal)
{
    struct kernel *kernel = NULL;
    struct device *device = NULL;
    struct function_settings *settings = NULL;
    TRY(settings_of(handle, ordinal, &kernel, &device, &settings));
    REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL);
    settings->cache_config = config;
    apply(kernel, device, settings);
    return CUDA_SUCCESS;
}
