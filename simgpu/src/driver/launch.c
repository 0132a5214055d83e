/*
 * Launching kernels.
 */
#include "launch.h"

#include "event_set.h"
#include "graph.h"

struct launch {
    CUfunction function;
    struct shape shape;
    CUstream stream;
    enum default_stream null_means;
    void **pointers;
    void **extra;
    const CUlaunchAttribute *attributes;
    size_t attribute_count;
};

/* In null mode a launch is counted and nothing else, to see what comes before the driver. */
static inline bool counts_only(void)
{
    return UNLIKELY(driver.null_mode) && __atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0;
}

/* Arguments first: then nothing has to be kept across a call. */
static CUresult count(CUfunction function, unsigned grid_x, unsigned block_x)
{
    if (UNLIKELY(function == NULL))
        return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(grid_x != 0 && block_x != 0);
    ENTER(context);
    sim_count_launch(context->device->index);
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult capture(struct stream *stream, struct function *function,
                        const struct launch *launch)
{
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .context = stream->context};
    TRY(kernel_call_make(function, &launch->shape, launch->pointers, launch->extra,
                         &payload.kernel));
    for (size_t i = 0; i < launch->attribute_count; i++) {
        const CUresult result = kernel_call_set_attribute(&payload.kernel, &launch->attributes[i]);
        if (result != CUDA_SUCCESS) {
            kernel_call_clear(&payload.kernel);
            return result;
        }
    }
    return capture_payload(stream, &payload);
}

/* Under the lock: events that the launch was asked to record. */
static CUresult record_events(struct stream *stream, const struct launch *launch)
{
    for (size_t i = 0; i < launch->attribute_count; i++) {
        const CUlaunchAttribute *attribute = &launch->attributes[i];
        struct event *event = NULL;
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            TRY(event_find(attribute->value.programmaticEvent.event, &event));
        else if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            TRY(event_find(attribute->value.launchCompletionEvent.event, &event));
        if (event != NULL)
            event_place(event, &stream->tail);
    }
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult submit(struct stream *stream, struct function *function,
                       const struct launch *launch)
{
    bool captures = false;
    if (UNLIKELY(function->context != stream->context))
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_captures(stream, &captures));
    if (UNLIKELY(captures))
        return capture(stream, function, launch);
    const struct task task = {
        .duration_ns =
            launch_duration_ns(function, &launch->shape, launch->pointers, launch->extra),
    };
    TRY(stream_append(stream, &task));
    __atomic_store_n(&function->is_loaded, true, __ATOMIC_RELAXED);
    sim_count_launch(stream->context->device->index);
    return launch->attribute_count == 0 ? CUDA_SUCCESS : record_events(stream, launch);
}

static CUresult run(const struct launch *launch)
{
    struct function *function = NULL;
    struct stream *stream = NULL;
    ENTER(context);
    if (counts_only())
        return count(launch->function, launch->shape.grid[0], launch->shape.block[0]);
    TRY(function_get(context, launch->function, &function));
    TRY(launch_check(function, &launch->shape));
    TRY(arguments_check(function, launch->pointers, launch->extra));
    if (launch->attribute_count > 0)
        TRY(launch_check_attributes(function, &launch->shape, launch->attributes,
                                    launch->attribute_count));
    if (__atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0)
        TRY(launch_fault(function->context));
    TRY(stream_lock(launch->stream, launch->null_means, &stream));
    const CUresult result = submit(stream, function, launch);
    order_unlock();
    return result;
}

/* --- entries ------------------------------------------------------------------------------- */

#define SHAPE {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}

#define LAUNCH_PARAMETERS                                                                          \
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                \
        void **pointers, void **extra
#define LAUNCH_ARGUMENTS                                                                           \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, pointers,   \
        extra

/* Functions of their own: in null mode, putting a launch together would be half of its cost. */
__attribute__((noinline)) static CUresult launch_legacy(LAUNCH_PARAMETERS)
{
    return run(&(struct launch){function, SHAPE, stream, DEFAULT_LEGACY, pointers, extra, NULL, 0});
}

__attribute__((noinline)) static CUresult launch_per_thread(LAUNCH_PARAMETERS)
{
    return run(
        &(struct launch){function, SHAPE, stream, DEFAULT_PER_THREAD, pointers, extra, NULL, 0});
}

ENTRY cuLaunchKernel(LAUNCH_PARAMETERS)
{
    return counts_only() ? count(function, grid_x, block_x) : launch_legacy(LAUNCH_ARGUMENTS);
}

ENTRY cuLaunchKernel_ptsz(LAUNCH_PARAMETERS)
{
    return counts_only() ? count(function, grid_x, block_x) : launch_per_thread(LAUNCH_ARGUMENTS);
}

static const CUlaunchAttribute cooperative[] = {
    {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}},
};

ENTRY cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared_bytes, CUstream stream,
                                void **pointers)
{
    return run(
        &(struct launch){function, SHAPE, stream, DEFAULT_LEGACY, pointers, NULL, cooperative, 1});
}

ENTRY cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, CUstream stream,
                                     void **pointers)
{
    return run(&(struct launch){function, SHAPE, stream, DEFAULT_PER_THREAD, pointers, NULL,
                                cooperative, 1});
}

static CUresult run_configured(const CUlaunchConfig *config, CUfunction function, void **pointers,
                               void **extra, enum default_stream null_means)
{
    REQUIRE(config != NULL && (config->numAttrs == 0 || config->attrs != NULL));
    return run(&(struct launch){
        .function = function,
        .shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->sharedMemBytes},
        .stream = config->hStream,
        .null_means = null_means,
        .pointers = pointers,
        .extra = extra,
        .attributes = config->attrs,
        .attribute_count = config->numAttrs,
    });
}

ENTRY cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **pointers,
                       void **extra)
{
    return run_configured(config, function, pointers, extra, DEFAULT_LEGACY);
}

ENTRY cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **pointers,
                            void **extra)
{
    return run_configured(config, function, pointers, extra, DEFAULT_PER_THREAD);
}

/* One launch for each device, all of the same shape, on streams that the program has made. */
ENTRY cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags)
{
    TRY(driver_check());
    REQUIRE(list != NULL && count > 0 && count <= driver.device_count && flags <= 3);
    uint64_t devices = 0;
    for (unsigned i = 0; i < count; i++) {
        struct context *context = NULL;
        REQUIRE(list[i].hStream != NULL && list[i].hStream != CU_STREAM_LEGACY &&
                list[i].hStream != CU_STREAM_PER_THREAD);
        TRY(stream_context(list[i].hStream, DEFAULT_LEGACY, &context));
        const uint64_t device = UINT64_C(1) << context->device->index;
        REQUIRE((devices & device) == 0);
        devices |= device;
        REQUIRE(list[i].gridDimX == list[0].gridDimX && list[i].gridDimY == list[0].gridDimY &&
                list[i].gridDimZ == list[0].gridDimZ && list[i].blockDimX == list[0].blockDimX &&
                list[i].blockDimY == list[0].blockDimY && list[i].blockDimZ == list[0].blockDimZ &&
                list[i].sharedMemBytes == list[0].sharedMemBytes);
    }
    for (unsigned i = 0; i < count; i++)
        TRY(cuLaunchCooperativeKernel(list[i].function, list[i].gridDimX, list[i].gridDimY,
                                      list[i].gridDimZ, list[i].blockDimX, list[i].blockDimY,
                                      list[i].blockDimZ, list[i].sharedMemBytes, list[i].hStream,
                                      list[i].kernelParams));
    return CUDA_SUCCESS;
}
