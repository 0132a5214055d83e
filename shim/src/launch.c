/*
 * Every call that launches kernels, each replaced by: charge, then launch.
 *
 * The short way ends in a tail call with the arguments where they are, so a launch with budget
 * costs a hash, a few loads and two atomic additions.
 */
#include "hook.h"

#include "throttle.h"

/*
 * What is launched and how large: a number that stands for the kernel's cost. Never 0, because no
 * handle is; two kernels that meet in one number would only share an estimate. Odd factors in 32
 * bits, because nothing is cheaper.
 */
static inline uint64_t key_of(const void *function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z)
{
    uint32_t shape = grid_x * 0x9e3779b1u + (grid_y + 8 * block_y) * 0x85ebca77u +
                     block_x * 0x27d4eb2fu + (grid_z + 8 * block_z) * 0xc2b2ae3du;
    return (uint64_t)(uintptr_t)function ^ (uint64_t)shape << 32;
}

/* A thread's own default stream is known by the thread. */
static inline uintptr_t own_stream(CUstream stream)
{
    return stream == NULL ? (uintptr_t)__builtin_thread_pointer() | 1 : (uintptr_t)stream;
}

/* The long way of any launching call. */
#define LAUNCH_LONG(name, key_value, stream_value, is_per_thread, ...)                             \
    do {                                                                                           \
        ENTER(name, __VA_ARGS__);                                                                  \
        if (!throttle_on)                                                                          \
            return real.name(__VA_ARGS__);                                                         \
        const struct launch launch = {key_value, stream_value, is_per_thread};                     \
        struct probe *probe = throttle_admit(&launch);                                             \
        CUresult launched = REAL(name, __VA_ARGS__);                                               \
        throttle_launched(probe, launched);                                                        \
        return launched;                                                                           \
    } while (0)

#define COLD __attribute__((noinline, cold))

/*
 * Arguments on the stack are passed on where they are. GCC moves them through registers all the
 * same, and saves those; it leaves them alone until the call when they are volatile.
 */
#ifdef __clang__
#define STAYS
#else
#define STAYS volatile
#endif

/* --- cuLaunchKernel ------------------------------------------------------------------------ */

#define KERNEL_PARAMETERS                                                                          \
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
        unsigned block_y, unsigned STAYS block_z, unsigned STAYS shared_mem_bytes,                 \
        CUstream STAYS stream, void **STAYS kernel_params, void **STAYS extra
#define KERNEL_ARGUMENTS                                                                           \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_mem_bytes, stream,         \
        kernel_params, extra
#define KERNEL_KEY key_of(function, grid_x, grid_y, grid_z, block_x, block_y, block_z)

COLD static CUresult launch_kernel_long(KERNEL_PARAMETERS)
{
    LAUNCH_LONG(cuLaunchKernel, KERNEL_KEY, stream, false, KERNEL_ARGUMENTS);
}

COLD static CUresult launch_kernel_ptsz_long(KERNEL_PARAMETERS)
{
    LAUNCH_LONG(cuLaunchKernel_ptsz, KERNEL_KEY, stream, true, KERNEL_ARGUMENTS);
}

EXPORT CUresult cuLaunchKernel(KERNEL_PARAMETERS)
{
    if (LIKELY(throttle_charge(KERNEL_KEY, (uintptr_t)stream)))
        return real.cuLaunchKernel(KERNEL_ARGUMENTS);
    return launch_kernel_long(KERNEL_ARGUMENTS);
}

EXPORT CUresult cuLaunchKernel_ptsz(KERNEL_PARAMETERS)
{
    if (LIKELY(throttle_charge(KERNEL_KEY, own_stream(stream))))
        return real.cuLaunchKernel_ptsz(KERNEL_ARGUMENTS);
    return launch_kernel_ptsz_long(KERNEL_ARGUMENTS);
}

/* --- cuLaunchKernelEx ---------------------------------------------------------------------- */

static inline uint64_t key_of_config(const CUlaunchConfig *config, CUfunction function)
{
    return key_of(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                  config->blockDimY, config->blockDimZ);
}

COLD static CUresult launch_ex_long(const CUlaunchConfig *config, CUfunction function,
                                    void **kernel_params, void **extra)
{
    LAUNCH_LONG(cuLaunchKernelEx, key_of_config(config, function), config->hStream, false, config,
                function, kernel_params, extra);
}

COLD static CUresult launch_ex_ptsz_long(const CUlaunchConfig *config, CUfunction function,
                                         void **kernel_params, void **extra)
{
    LAUNCH_LONG(cuLaunchKernelEx_ptsz, key_of_config(config, function), config->hStream, true,
                config, function, kernel_params, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                 void **kernel_params, void **extra)
{
    if (UNLIKELY(config == NULL) ||
        LIKELY(throttle_charge(key_of_config(config, function), (uintptr_t)config->hStream)))
        return real.cuLaunchKernelEx(config, function, kernel_params, extra);
    return launch_ex_long(config, function, kernel_params, extra);
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                      void **kernel_params, void **extra)
{
    if (UNLIKELY(config == NULL) ||
        LIKELY(throttle_charge(key_of_config(config, function), own_stream(config->hStream))))
        return real.cuLaunchKernelEx_ptsz(config, function, kernel_params, extra);
    return launch_ex_ptsz_long(config, function, kernel_params, extra);
}

/* --- the rarer ones, which always take the long way ---------------------------------------- */

#define COOPERATIVE_PARAMETERS                                                                     \
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
        unsigned block_y, unsigned block_z, unsigned shared_mem_bytes, CUstream stream,            \
        void **kernel_params
#define COOPERATIVE_ARGUMENTS                                                                      \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_mem_bytes, stream,         \
        kernel_params

EXPORT CUresult cuLaunchCooperativeKernel(COOPERATIVE_PARAMETERS)
{
    LAUNCH_LONG(cuLaunchCooperativeKernel, KERNEL_KEY, stream, false, COOPERATIVE_ARGUMENTS);
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(COOPERATIVE_PARAMETERS)
{
    LAUNCH_LONG(cuLaunchCooperativeKernel_ptsz, KERNEL_KEY, stream, true, COOPERATIVE_ARGUMENTS);
}

EXPORT CUresult cuLaunch(CUfunction function)
{
    LAUNCH_LONG(cuLaunch, key_of(function, 1, 1, 1, 0, 0, 0), NULL, false, function);
}

EXPORT CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height)
{
    LAUNCH_LONG(cuLaunchGrid,
                key_of(function, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0), NULL,
                false, function, grid_width, grid_height);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction function, int grid_width, int grid_height,
                                  CUstream stream)
{
    LAUNCH_LONG(cuLaunchGridAsync,
                key_of(function, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0), stream,
                false, function, grid_width, grid_height, stream);
}

/* One launch on each of several devices, each charged to its own. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launch_params_list,
                                                     unsigned num_devices, unsigned flags)
{
    enum { DEVICES_MOST_AT_ONCE = 16 };
    struct probe *probes[DEVICES_MOST_AT_ONCE] = {NULL};
    ENTER(cuLaunchCooperativeKernelMultiDevice, launch_params_list, num_devices, flags);
    unsigned count = launch_params_list == NULL ? 0 : num_devices;
    if (count > DEVICES_MOST_AT_ONCE)
        count = DEVICES_MOST_AT_ONCE;
    for (unsigned i = 0; i < count && throttle_on; i++) {
        const CUDA_LAUNCH_PARAMS *one = &launch_params_list[i];
        const struct launch launch = {key_of(one->function, one->gridDimX, one->gridDimY,
                                             one->gridDimZ, one->blockDimX, one->blockDimY,
                                             one->blockDimZ),
                                      one->hStream, false};
        probes[i] = throttle_admit(&launch);
    }
    CUresult launched =
        REAL(cuLaunchCooperativeKernelMultiDevice, launch_params_list, num_devices, flags);
    for (unsigned i = 0; i < count; i++)
        throttle_launched(probes[i], launched);
    return launched;
}

/* --- graphs, which graph_memory.c replaces for the sake of their memory -------------------- */

struct probe *throttle_graph(CUgraphExec graph, CUstream stream, bool per_thread)
{
    const struct launch launch = {key_of(graph, 0, 0, 0, 0, 0, 0), stream, per_thread};
    return throttle_on ? throttle_admit(&launch) : NULL;
}
