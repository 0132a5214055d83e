/* The contexts of a thread: a stack whose top is current, and the calls that create onto it. */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "stream.h"

THREAD_LOCAL struct thread thread;

/* What lies below the top. */
struct stack {
    size_t depth;
    size_t room;
    struct thread below[];
};

static _Thread_local struct stack *stack;
static pthread_key_t stack_key;
static pthread_once_t stack_key_made = PTHREAD_ONCE_INIT;

static void make_stack_key(void)
{
    pthread_key_create(&stack_key, free);
}

static bool make_room(void)
{
    if (stack != NULL && stack->depth < stack->room)
        return true;
    const size_t room = stack != NULL ? stack->room * 2 : 8;
    struct stack *larger = realloc(stack, sizeof *larger + room * sizeof larger->below[0]);
    if (larger == NULL)
        return false;
    if (stack == NULL)
        larger->depth = 0;
    larger->room = room;
    stack = larger;
    pthread_once(&stack_key_made, make_stack_key);
    pthread_setspecific(stack_key, stack);
    return true;
}

static void set_top(struct context *context)
{
    thread.current = context;
    thread.stamp = context != NULL ? context->stamp : 0;
}

CUresult stack_push(struct context *context)
{
    if (thread.current != NULL) {
        if (!make_room())
            return CUDA_ERROR_OUT_OF_MEMORY;
        stack->below[stack->depth++] = thread;
    }
    set_top(context);
    return CUDA_SUCCESS;
}

struct context *stack_pop(void)
{
    struct context *top = thread.current;
    if (stack != NULL && stack->depth > 0)
        thread = stack->below[--stack->depth];
    else
        set_top(NULL);
    return top;
}

CUresult stack_replace(struct context *context)
{
    if (context == NULL)
        stack_pop();
    else
        set_top(context);
    return CUDA_SUCCESS;
}

/* --- creating and destroying --------------------------------------------------------------- */

static CUresult check_flags(unsigned flags)
{
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    REQUIRE((schedule & (schedule - 1)) == 0);
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *handle, unsigned flags, CUdevice ordinal, unsigned api_version)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(handle != NULL);
    TRY(check_flags(flags));
    struct context *context = NULL;
    TRY(context_create(device, flags, api_version, &context));
    const CUresult result = stack_push(context);
    if (result != CUDA_SUCCESS)
        context_destroy(context);
    else
        *handle = context_handle(context);
    return result;
}

ENTRY cuCtxCreate(CUcontext *handle, unsigned flags, CUdevice ordinal)
{
    return create(handle, flags, ordinal, 3010);
}

ENTRY cuCtxCreate_v2(CUcontext *handle, unsigned flags, CUdevice ordinal)
{
    return create(handle, flags, ordinal, 3020);
}

/* Parts of a device by SM count exist under MPS only, which is not simulated. */
ENTRY cuCtxCreate_v3(CUcontext *handle, CUexecAffinityParam *affinities, int count, unsigned flags,
                     CUdevice ordinal)
{
    TRY(driver_check());
    REQUIRE(count >= 0 && (count == 0 || affinities != NULL));
    if (count > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(handle, flags, ordinal, 3020);
}

ENTRY cuCtxCreate_v4(CUcontext *handle, CUctxCreateParams *parameters, unsigned flags,
                     CUdevice ordinal)
{
    TRY(driver_check());
    if (parameters != NULL) {
        REQUIRE(parameters->execAffinityParams == NULL || parameters->cigParams == NULL);
        if (parameters->execAffinityParams != NULL && parameters->numExecAffinityParams > 0)
            return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        if (parameters->cigParams != NULL)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create(handle, flags, ordinal, 3020);
}

ENTRY cuCtxDestroy_v2(CUcontext handle)
{
    struct context *context = NULL;
    TRY(context_get(handle, &context));
    if (context->is_primary || context->is_green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.current == context)
        stack_pop();
    context_destroy(context);
    return CUDA_SUCCESS;
}
TWIN(cuCtxDestroy, cuCtxDestroy_v2);

/* The two of CUDA 2: a count of users, which was always of the current context. */
ENTRY cuCtxAttach(CUcontext *handle, unsigned flags)
{
    ENTER(context);
    REQUIRE(handle != NULL && flags == 0);
    __atomic_fetch_add(&context->retains, 1, __ATOMIC_RELAXED);
    *handle = context_handle(context);
    return CUDA_SUCCESS;
}

ENTRY cuCtxDetach(CUcontext handle)
{
    struct context *context = NULL;
    TRY(context_get(handle, &context));
    if (context != thread.current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (__atomic_sub_fetch(&context->retains, 1, __ATOMIC_RELAXED) > 0)
        return CUDA_SUCCESS;
    return cuCtxDestroy_v2(handle);
}

/* --- switching ----------------------------------------------------------------------------- */

ENTRY cuCtxPushCurrent_v2(CUcontext handle)
{
    struct context *context = NULL;
    TRY(context_get(handle, &context));
    return stack_push(context);
}
TWIN(cuCtxPushCurrent, cuCtxPushCurrent_v2);

ENTRY cuCtxPopCurrent_v2(CUcontext *handle)
{
    TRY(driver_check());
    struct context *context = stack_pop();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (handle != NULL)
        *handle = context_handle(context);
    return CUDA_SUCCESS;
}
TWIN(cuCtxPopCurrent, cuCtxPopCurrent_v2);

ENTRY cuCtxSetCurrent(CUcontext handle)
{
    TRY(driver_check());
    struct context *context = NULL;
    if (handle != NULL)
        TRY(context_get(handle, &context));
    return stack_replace(context);
}

ENTRY cuCtxGetCurrent(CUcontext *handle)
{
    TRY(driver_check());
    REQUIRE(handle != NULL);
    *handle = context_handle(context_current());
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetDevice(CUdevice *device)
{
    ENTER(context);
    REQUIRE(device != NULL);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

/* In the calls below a null handle means the current context. */
static CUresult named_or_current(CUcontext handle, struct context **context)
{
    return handle != NULL ? context_get(handle, context) : context_enter(context);
}

ENTRY cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    struct context *context = NULL;
    TRY(named_or_current(handle, &context));
    REQUIRE(device != NULL);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    struct context *context = NULL;
    TRY(named_or_current(handle, &context));
    REQUIRE(id != NULL);
    *id = context->id;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    struct context *context = NULL;
    TRY(named_or_current(handle, &context));
    REQUIRE(version != NULL);
    *version = context->api_version;
    return CUDA_SUCCESS;
}

ENTRY cuCtxSynchronize_v2(CUcontext handle)
{
    struct context *context = NULL;
    TRY(named_or_current(handle, &context));
    TRY(capture_refuse_waiting(context));
    TRY(streams_wait(context));
    pools_settle(context->device);
    return CUDA_SUCCESS;
}

ENTRY cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

ENTRY cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    TRY(check_flags(flags));
    device->primary_flags = flags;
    if (device->primary != NULL)
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}
TWIN(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);
