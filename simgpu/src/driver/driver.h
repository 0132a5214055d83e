/*
 * The simulated driver inside one process: its devices, contexts, and how entries are written.
 *
 * Every entry of the API is a function marked ENTRY in the file of its topic; a second name for the
 * same behaviour is a TWIN. Names that nobody defines are weak stubs made from names.def. Entries
 * check in this order, as the documentation has it: initialised, context, arguments, handles.
 *
 * What lives where: devices, contexts and memory in init.c to multicast.c; streams, events,
 * launches, modules and graphs behind stream.h. Locks are leaves: no lock is held while another
 * file's function is called, except that memory's own files call each other.
 */
#pragma once

#include "core.h"
#include "cuda_abi.h"
#include "cuda_exec_abi.h"
#include "table.h"

#define ENTRY __attribute__((visibility("default"))) CUresult
#define TWIN(name, target)                                                                         \
    extern __typeof__(target) name __attribute__((alias(#target), visibility("default")))

#define LIKELY(claim) __builtin_expect(!!(claim), 1)
#define UNLIKELY(claim) __builtin_expect(!!(claim), 0)

/* Returns from the entry unless the expression is CUDA_SUCCESS. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        const CUresult tried = (expression);                                                       \
        if (UNLIKELY(tried != CUDA_SUCCESS))                                                       \
            return tried;                                                                          \
    } while (0)

/* Returns CUDA_ERROR_INVALID_VALUE from the entry unless the claim holds. */
#define REQUIRE(claim)                                                                             \
    do {                                                                                           \
        if (UNLIKELY(!(claim)))                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
    } while (0)

/* --- the driver of this process ------------------------------------------------------------ */

/*
 * What every call answers about a device that fell off the bus. CUDA has no error of its own for
 * that, and DEVICE_UNAVAILABLE is documented for devices that somebody has to himself.
 */
#define DEVICE_IS_LOST CUDA_ERROR_UNKNOWN

/* A device as the program numbers it, after CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. */
struct device {
    unsigned index;   /* in the node: what core.h takes */
    CUdevice ordinal; /* in the program */
    const struct sim_profile *profile;
    const uint32_t *lost;  /* not zero: fell off the bus */
    const uint32_t *armed; /* not zero: lost, or a fault waits for its call */
    struct context *primary;
    unsigned primary_flags;
    struct pool *default_pool;
    struct pool *current_pool; /* NULL: the default one */
    bool pools_hold;           /* something was freed into a pool since the last settling */
};

struct driver {
    bool ready; /* cuInit has succeeded in this process, not in its parent */
    bool null_mode;
    unsigned device_count;
    const struct sim_state *node;
    struct device devices[SIM_DEVICES];
};

extern struct driver driver;

/* CUDA_ERROR_NOT_INITIALIZED before cuInit, which a forked child has to call anew. */
static inline CUresult driver_check(void)
{
    return LIKELY(driver.ready) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* The device with this ordinal, if initialised and in range; it may be lost. */
CUresult device_get(CUdevice ordinal, struct device **device);

/* What cuDeviceGetAttribute answers; CUDA_ERROR_INVALID_VALUE when there is no such attribute. */
CUresult device_attribute(const struct device *device, CUdevice_attribute attribute, int *value);

/* Whether kernels and copies of the one can reach the other's memory. */
bool device_reaches(const struct device *device, const struct device *peer);

/* One line on stderr when ALIQUOT_SIM_LOG is set; `driver_complain` says it always. */
void driver_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void driver_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- contexts ------------------------------------------------------------------------------ */

struct context {
    uint64_t stamp;  /* never the same for two contexts; 0 while it is destroyed or inactive */
    CUresult sticky; /* an error after which the context only answers that error */
    struct device *device;
    uint64_t id;
    unsigned api_version;
    unsigned flags;
    unsigned retains; /* of a primary context; of others what cuCtxAttach counted */
    bool is_primary;
    bool is_green;
    unsigned sm_count; /* a green context's part of the device */
    uint64_t peers;    /* bit n: cuCtxEnablePeerAccess to a context of ordinal n */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    struct stream_set *streams; /* stream.c's; see streams_open */
    struct memory_set *memory;  /* memory.c's: what is freed when the context ends */
};

/* The current thread's context: the top of its stack. */
struct thread {
    struct context *current;
    uint64_t stamp; /* of the context when it was made current */
};

#ifdef __GLIBC__
/* Reached without a call into the dynamic linker: a launch is compared with 50 instructions. */
#define THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define THREAD_LOCAL _Thread_local
#endif

extern THREAD_LOCAL struct thread thread;

/*
 * Whether the current context can be used: initialised, there is one, it has not been destroyed,
 * its device is not lost, and no sticky error stands. The slow half of ENTER.
 */
CUresult context_check_current(void);

/* Whether everything about a current context is plainly in order. */
static inline bool context_is_fine(const struct context *context)
{
    return LIKELY(context != NULL && context->stamp == thread.stamp &&
                  (context->sticky | *(volatile const uint32_t *)context->device->armed) == 0);
}

/* Declares `name`, the current context, or returns from the entry with the reason. */
#define ENTER(name)                                                                                \
    struct context *const name = thread.current;                                                   \
    if (!context_is_fine(name))                                                                    \
    TRY(context_check_current())

/* The same where no declaration fits. */
static inline CUresult context_enter(struct context **context)
{
    ENTER(current);
    *context = current;
    return CUDA_SUCCESS;
}

/* Lower numbers are more urgent. */
enum { STREAM_PRIORITY_LEAST = 0, STREAM_PRIORITY_GREATEST = -5 };

/* The current context whatever its state, NULL when there is none. */
static inline struct context *context_current(void)
{
    return thread.current;
}

/* A handle's context; CUDA_ERROR_INVALID_CONTEXT or CONTEXT_IS_DESTROYED when it is none. */
CUresult context_get(CUcontext handle, struct context **context);

static inline CUcontext context_handle(const struct context *context)
{
    return (CUcontext)(uintptr_t)context;
}

/* The context that a green context handle stands for. */
CUresult context_of_green(CUgreenCtx handle, struct context **context);

/* Records an error that stays (launch failure, ECC ...) and answers it. */
CUresult context_fail(struct context *context, CUresult error);

/* --- memory -------------------------------------------------------------------------------- */

/*
 * Whether [address, address + bytes) lies inside one piece of device, managed or registered host
 * memory. Device addresses are addresses of this process: what is held can be read and written.
 */
bool memory_holds(CUdeviceptr address, size_t bytes);

/*
 * To be called when a call has waited for work on the device (cuStreamSynchronize,
 * cuEventSynchronize, cuCtxSynchronize): pools let go of what they keep beyond their threshold.
 */
void pools_settle(const struct device *device);

/* --- forks --------------------------------------------------------------------------------- */

/*
 * Called in a forked child before anything else of it runs: forget every stream, event, module and
 * graph without touching the node, and make the locks anew. Defined with the streams.
 */
void streams_forget(void);
