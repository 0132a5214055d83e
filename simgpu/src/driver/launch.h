/*
 * A kernel launch: its shape, its parameters, and how long it takes.
 */
#pragma once

#include "module.h"

struct shape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes; /* dynamic */
};

/* A launch that is kept: a graph's node. Owns the arguments and attributes. */
struct kernel_call {
    struct function *function;
    uint64_t serial; /* of the function: it may have been unloaded since */
    CUkernel kernel; /* how the program named it, if so */
    struct shape shape;
    uint8_t *arguments; /* packed as the kernel takes them, or as given in a buffer */
    size_t argument_bytes;
    void **pointers; /* into `arguments`, one for each parameter; NULL: given in a buffer */
    void *extra[5];
    CUlaunchAttribute *attributes;
    size_t attribute_count;
    uint64_t duration_ns;
};

/* --- launch_check.c ------------------------------------------------------------------------ */

/* Whether the device can run the function in this shape. */
CUresult launch_check(const struct function *function, const struct shape *shape);

/* Whether the attributes are possible together with the shape. */
CUresult launch_check_attributes(const struct function *function, const struct shape *shape,
                                 const CUlaunchAttribute *attributes, size_t count);

/* A failure that was asked for on the simulated device, or CUDA_SUCCESS. */
CUresult launch_fault(struct context *context);

/* --- kernel_call.c ------------------------------------------------------------------------- */

/* Keeps a launch. `pointers` or `extra` as cuLaunchKernel takes them. */
CUresult kernel_call_make(struct function *function, const struct shape *shape, void **pointers,
                          void **extra, struct kernel_call *call);
CUresult kernel_call_copy(struct kernel_call *to, const struct kernel_call *from);
void kernel_call_clear(struct kernel_call *call);
CUresult kernel_call_set_attribute(struct kernel_call *call, const CUlaunchAttribute *attribute);

/* The arguments as the program reads them back. */
void kernel_call_show(struct kernel_call *call, void ***pointers, void ***extra);

/* Whether the arguments can be found at all: given, one way or the other, when there are any. */
CUresult arguments_check(const struct function *function, void **pointers, void **extra);

/* --- duration.c ---------------------------------------------------------------------------- */

/* How a function's duration is found, by its name. */
void timing_of(const char *name, struct function *function);

/*
 * How long a launch takes. Our own test kernels say it themselves: `aliquot_spin` takes the
 * nanoseconds of its first parameter, `aliquot_spin_us_250` takes 250 us. For all others: 3 us, and
 * 2 us for every 256 threads of a block in every wave, where a wave is as many blocks as the SMs
 * can hold at a time.
 */
uint64_t launch_duration_ns(const struct function *function, const struct shape *shape,
                            void *const *pointers, void *const *extra);

/* --- occupancy.c --------------------------------------------------------------------------- */

/* How many blocks an SM can hold at a time. */
unsigned occupancy_blocks(const struct function *function, unsigned threads, size_t dynamic_bytes);
