/*
 * Functions: what can be asked about them and set on them.
 */
#include "module.h"

#include <stdlib.h>

enum {
    SHARED_WITHOUT_PERMISSION = 48 << 10,
    REGISTERS_UNKNOWN = 32, /* what is assumed of code that has not been compiled */
};

static unsigned device_limit(const struct device *device, CUdevice_attribute attribute)
{
    int value = 0;
    device_attribute(device, attribute, &value);
    return (unsigned)value;
}

/* --- settings ------------------------------------------------------------------------------ */

void settings_reset(struct function_settings *settings)
{
    *settings = (struct function_settings){.max_dynamic_bytes = -1, .carveout_percent = -1};
}

static CUresult set_cluster(struct function_settings *settings, const struct image_function *code,
                            int axis, int value)
{
    if (code->cluster[0] != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    REQUIRE(value >= 0);
    settings->cluster[axis] = value;
    return CUDA_SUCCESS;
}

CUresult settings_set(struct function_settings *settings, const struct image_function *code,
                      const struct device *device, CUfunction_attribute attribute, int value)
{
    const unsigned most =
        device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        REQUIRE(value >= 0 && (unsigned)value + code->shared_bytes <= most);
        settings->max_dynamic_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        REQUIRE(value >= -1 && value <= 100);
        settings->carveout_percent = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        return set_cluster(settings, code,
                           (int)attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, value);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        settings->non_portable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        REQUIRE(value >= 0 && value <= 3);
        settings->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static unsigned shared_limit(const struct image_function *code,
                             const struct function_settings *settings)
{
    if (settings->max_dynamic_bytes >= 0)
        return code->shared_bytes + (unsigned)settings->max_dynamic_bytes;
    return code->shared_bytes > SHARED_WITHOUT_PERMISSION ? code->shared_bytes
                                                          : SHARED_WITHOUT_PERMISSION;
}

static unsigned thread_limit(const struct image_function *code, const struct device *device)
{
    unsigned most = device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (code->max_threads != 0 && code->max_threads < most)
        most = code->max_threads;
    if (code->registers != 0) {
        const unsigned registers =
            device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
        const unsigned fitting = registers / code->registers / 32 * 32;
        most = fitting < most ? fitting : most;
    }
    return most;
}

/* What launches are checked against and timed by, kept where a launch finds it. */
void function_limit(struct function *function)
{
    const struct device *device = function->context->device;
    function->max_threads = thread_limit(function->code, device);
    function->max_shared_bytes = shared_limit(function->code, &function->settings);
    function->sm = (struct sm_limits){
        .threads = device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
        .blocks = device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
        .registers = device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
        .shared_bytes =
            device_limit(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        .reserved_shared_bytes =
            device_limit(device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
    };
}

CUresult code_attribute(const struct image *image, const struct image_function *code,
                        const struct function_settings *settings, const struct device *device,
                        CUfunction_attribute attribute, int *value)
{
    const unsigned capability =
        device->profile->compute_major * 10 + device->profile->compute_minor;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)thread_limit(code, device);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)code->shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)code->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = code->registers != 0 ? (int)code->registers : REGISTERS_UNKNOWN;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)image->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)(image->ptx_version != 0 ? capability : image->target);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)(shared_limit(code, settings) - code->shared_bytes);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = settings->carveout_percent;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
        const int axis = (int)attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
        *value = code->cluster[0] != 0 ? (int)code->cluster[axis] : settings->cluster[axis];
        return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = settings->non_portable_cluster;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = settings->cluster_policy;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)image->constant_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED:
    case CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- entries ------------------------------------------------------------------------------- */

static CUresult get(CUfunction handle, struct function **function)
{
    ENTER(context);
    return function_get(context, handle, function);
}

ENTRY cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(value != NULL);
    return code_attribute(function->module->image, function->code, &function->settings,
                          function->context->device, attribute, value);
}

ENTRY cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    TRY(settings_set(&function->settings, function->code, function->context->device, attribute,
                     value));
    function->max_shared_bytes = shared_limit(function->code, &function->settings);
    return CUDA_SUCCESS;
}

ENTRY cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL);
    function->settings.cache_config = config;
    return CUDA_SUCCESS;
}

ENTRY cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE((unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    function->settings.shared_config = config;
    return CUDA_SUCCESS;
}

ENTRY cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(module != NULL);
    *module = (CUmodule)(uintptr_t)function->module;
    return CUDA_SUCCESS;
}

ENTRY cuFuncGetName(const char **name, CUfunction handle)
{
    REQUIRE(name != NULL && handle != NULL);
    struct function *function = NULL;
    TRY(get(handle, &function));
    *name = function->code->name;
    return CUDA_SUCCESS;
}

ENTRY cuFuncGetParamCount(CUfunction handle, size_t *count)
{
    REQUIRE(count != NULL);
    struct function *function = NULL;
    TRY(get(handle, &function));
    *count = function->code->parameter_count;
    return CUDA_SUCCESS;
}

ENTRY cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes)
{
    REQUIRE(offset != NULL);
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(index < function->code->parameter_count);
    *offset = function->code->parameters[index].offset;
    if (bytes != NULL)
        *bytes = function->code->parameters[index].bytes;
    return CUDA_SUCCESS;
}

ENTRY cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    REQUIRE(state != NULL);
    *state = __atomic_load_n(&function->is_loaded, __ATOMIC_RELAXED)
                 ? CU_FUNCTION_LOADING_STATE_LOADED
                 : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

ENTRY cuFuncLoad(CUfunction handle)
{
    struct function *function = NULL;
    TRY(get(handle, &function));
    __atomic_store_n(&function->is_loaded, true, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}
