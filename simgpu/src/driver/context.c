/* Contexts: made, charged, ended; the primary one of each device. */
#include "context.h"

#include <errno.h>

#include "array.h"
#include "host.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"

enum { MOST_CONTEXTS = 1 << 16 };

static struct table contexts = TABLE(struct context, MOST_CONTEXTS);

/* Held while contexts open, close, and primary ones are counted; taken before any other lock. */
static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id;
static uint64_t last_stamp;

void contexts_forget(void)
{
    table_forget(&contexts);
    lifecycle = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    stack_replace(NULL);
    while (stack_pop() != NULL)
        continue;
    thread = (struct thread){.current = NULL};
}

CUresult context_check_current(void)
{
    struct context *current = thread.current;
    TRY(driver_check());
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    const uint64_t stamp = __atomic_load_n(&current->stamp, __ATOMIC_ACQUIRE);
    /* A primary context that was reset and retained again is the same one to its threads. */
    if (current->is_primary && stamp != 0)
        thread.stamp = stamp;
    if (stamp != thread.stamp)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (*current->device->lost != 0) {
        driver_log("device %d has fallen off the bus", current->device->ordinal);
        return DEVICE_IS_LOST;
    }
    /* An uncorrectable error of the device ends what was going on there. */
    const int fault = sim_fault(current->device->index, SIM_CALL_ANY);
    return fault != 0 ? context_fail(current, (CUresult)fault) : current->sticky;
}

CUresult context_get(CUcontext handle, struct context **context)
{
    TRY(driver_check());
    struct context *found = (struct context *)handle;
    if (found == NULL || !table_holds(&contexts, found))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (found->stamp == 0)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = found;
    return CUDA_SUCCESS;
}

CUresult context_of_green(CUgreenCtx handle, struct context **context)
{
    TRY(context_get((CUcontext)(uintptr_t)handle, context));
    return (*context)->is_green ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_fail(struct context *context, CUresult error)
{
    CUresult none = CUDA_SUCCESS;
    __atomic_compare_exchange_n(&context->sticky, &none, error, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return context->sticky;
}

static CUresult charge(const struct device *device)
{
    if (*device->lost != 0)
        return DEVICE_IS_LOST;
    const int error = sim_reserve(device->index, device->profile->context_bytes);
    if (error == 0)
        return CUDA_SUCCESS;
    if (error == -ENOMEM) {
        driver_log("no memory for a context on device %d: it takes %llu bytes", device->ordinal,
                   (unsigned long long)device->profile->context_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    driver_log("the node has no room for another process");
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static void set_defaults(struct context *context)
{
    context->sticky = CUDA_SUCCESS;
    context->peers = 0;
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    context->sm_count = context->device->profile->sm_count;
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
}

static void begin(struct context *context)
{
    if (context->id == 0)
        context->id = ++last_id;
    __atomic_store_n(&context->stamp, ++last_stamp, __ATOMIC_RELEASE);
}

/* Makes a context usable; a primary one again and again, with the id it had before. */
static CUresult open_context(struct context *context)
{
    set_defaults(context);
    TRY(charge(context->device));
    CUresult result = memory_open(context);
    if (result == CUDA_SUCCESS) {
        result = streams_open(context);
        if (result != CUDA_SUCCESS)
            memory_close(context);
    }
    if (result != CUDA_SUCCESS) {
        sim_release(context->device->index, context->device->profile->context_bytes);
        return result;
    }
    begin(context);
    return CUDA_SUCCESS;
}

static void close_context(struct context *context)
{
    __atomic_store_n(&context->stamp, 0, __ATOMIC_RELEASE);
    streams_close(context);
    if (context->is_green)
        return;
    textures_close(context);
    mipmaps_close(context);
    arrays_close(context);
    externals_close(context);
    host_close(context);
    memory_close(context);
    sim_release(context->device->index, context->device->profile->context_bytes);
    if (!device_has_context(context->device))
        pools_close(context->device);
}

static CUresult create_locked(struct device *device, unsigned flags, unsigned api_version,
                              struct context **context)
{
    struct context *fresh = table_take(&contexts);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->device = device;
    fresh->flags = flags;
    fresh->api_version = api_version;
    fresh->retains = 1;
    const CUresult result = open_context(fresh);
    if (result == CUDA_SUCCESS)
        *context = fresh;
    else
        table_give(&contexts, fresh);
    return result;
}

CUresult context_create(struct device *device, unsigned flags, unsigned api_version,
                        struct context **context)
{
    pthread_mutex_lock(&lifecycle);
    const CUresult result = create_locked(device, flags, api_version, context);
    pthread_mutex_unlock(&lifecycle);
    return result;
}

CUresult context_destroy(struct context *context)
{
    pthread_mutex_lock(&lifecycle);
    /* Another thread may have been faster. */
    const bool lives = table_holds(&contexts, context) && context->stamp != 0;
    if (lives) {
        close_context(context);
        table_give(&contexts, context);
    }
    pthread_mutex_unlock(&lifecycle);
    return lives ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* --- primary contexts ---------------------------------------------------------------------- */

static CUresult primary_open(struct device *device)
{
    if (device->primary == NULL) {
        struct context *fresh = table_take(&contexts);
        if (fresh == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        fresh->device = device;
        fresh->api_version = 3020;
        fresh->is_primary = true;
        device->primary = fresh;
    }
    device->primary->flags = device->primary_flags;
    return device->primary->stamp != 0 ? CUDA_SUCCESS : open_context(device->primary);
}

CUresult primary_retain(struct device *device, struct context **context)
{
    pthread_mutex_lock(&lifecycle);
    const CUresult result = primary_open(device);
    if (result == CUDA_SUCCESS) {
        device->primary->retains++;
        *context = device->primary;
    }
    pthread_mutex_unlock(&lifecycle);
    return result;
}

CUresult primary_release(struct device *device)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lifecycle);
    struct context *primary = device->primary;
    if (primary == NULL || primary->retains == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--primary->retains == 0 && primary->stamp != 0)
        close_context(primary);
    pthread_mutex_unlock(&lifecycle);
    return result;
}

CUresult context_create_green(struct device *device, unsigned sm_count, struct context **context)
{
    struct context *primary = NULL;
    TRY(primary_retain(device, &primary));
    struct context *fresh = table_take(&contexts);
    CUresult result = fresh != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lifecycle);
    if (fresh != NULL) {
        fresh->device = device;
        fresh->api_version = 3020;
        fresh->is_green = true;
        set_defaults(fresh);
        fresh->sm_count = sm_count;
        fresh->memory = primary->memory;
        result = streams_open(fresh);
        if (result == CUDA_SUCCESS)
            begin(fresh);
        else
            table_give(&contexts, fresh);
    }
    pthread_mutex_unlock(&lifecycle);
    if (result == CUDA_SUCCESS)
        *context = fresh;
    else
        primary_release(device);
    return result;
}

struct search {
    const struct device *device;
    bool found;
};

static void find_open(void *object, void *argument)
{
    const struct context *context = object;
    struct search *search = argument;
    search->found |= context->device == search->device && context->stamp != 0;
}

bool device_has_context(const struct device *device)
{
    struct search search = {.device = device};
    table_each(&contexts, find_open, &search);
    return search.found;
}

ENTRY cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(handle != NULL);
    struct context *context = NULL;
    TRY(primary_retain(device, &context));
    *handle = context_handle(context);
    return CUDA_SUCCESS;
}

ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    return primary_release(device);
}
TWIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

/* The number of retains stays: who retained it still has to release it. */
ENTRY cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    pthread_mutex_lock(&lifecycle);
    if (device->primary != NULL && device->primary->stamp != 0)
        close_context(device->primary);
    pthread_mutex_unlock(&lifecycle);
    return CUDA_SUCCESS;
}
TWIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

ENTRY cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(flags != NULL && active != NULL);
    pthread_mutex_lock(&lifecycle);
    *flags = device->primary_flags;
    *active = device->primary != NULL && device->primary->stamp != 0;
    pthread_mutex_unlock(&lifecycle);
    return CUDA_SUCCESS;
}
