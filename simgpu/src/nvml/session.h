/*
 * The simulated NVML inside one process: whether it is initialised, its devices, and how entries
 * are written.
 *
 * Every entry is a function marked ENTRY in the file of its topic; a second name for the same
 * behaviour is a TWIN. Names that nobody defines are weak stubs made from names.def. Entries check
 * in this order: initialised, arguments, handle, lost device, injected fault.
 *
 * NVML only looks: it never becomes a process of the node. Like the real one it ignores
 * CUDA_VISIBLE_DEVICES.
 */
#pragma once

#include <stdbool.h>

#include "core.h"
#include "nvml_abi.h"

#define ENTRY __attribute__((visibility("default"))) nvmlReturn_t
#define TWIN(name, target)                                                                         \
    extern __typeof__(target) name __attribute__((alias(#target), visibility("default")))

/* Returns from the entry unless the expression is NVML_SUCCESS. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        const nvmlReturn_t tried = (expression);                                                   \
        if (tried != NVML_SUCCESS)                                                                 \
            return tried;                                                                          \
    } while (0)

/* Returns `otherwise` from the entry unless the claim holds. */
#define REQUIRE(claim, otherwise)                                                                  \
    do {                                                                                           \
        if (!(claim))                                                                              \
            return (otherwise);                                                                    \
    } while (0)

/* A device as one call sees it. */
struct gpu {
    unsigned index;
    const struct sim_state *node;
    const struct sim_device *device;
    const struct sim_profile *profile;
};

/*
 * Starts an entry that is about no device. `arguments` says whether what the caller gave is
 * complete.
 */
nvmlReturn_t open_system(const struct sim_state **node, bool arguments);

/* Starts an entry about a device. */
nvmlReturn_t open_gpu(struct gpu *gpu, nvmlDevice_t handle, bool arguments);

/* The same for an entry that shows what processes do: the node's timeline is moved to now. */
nvmlReturn_t open_live_gpu(struct gpu *gpu, nvmlDevice_t handle, bool arguments);

/* The same for an entry about two devices. */
nvmlReturn_t open_pair(struct gpu pair[2], nvmlDevice_t first, nvmlDevice_t second, bool arguments);

/* What is left to check of a device whose number is known: that it is not lost, and faults. */
nvmlReturn_t check_gpu(const struct gpu *gpu);

/* A device of an initialised session by its number, which must be below the node's count. */
struct gpu gpu_of(const struct sim_state *node, unsigned index);
nvmlDevice_t handle_of(unsigned index);

/* NVML_ERROR_INSUFFICIENT_SIZE unless the text fits. */
nvmlReturn_t answer_text(char *buffer, unsigned int length, const char *text);

/* Checks the number that starts a versioned struct. */
#define REQUIRE_VERSION(pointer, type, number)                                                     \
    REQUIRE((pointer)->version == NVML_STRUCT_VERSION(type, number),                               \
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

/* An entry that answers one value about a device; `expression` may use `gpu`. */
#define GETTER(function, type, expression)                                                         \
    ENTRY function(nvmlDevice_t handle, type *value)                                               \
    {                                                                                              \
        struct gpu gpu;                                                                            \
        TRY(open_gpu(&gpu, handle, value));                                                        \
        *value = (type)(expression);                                                               \
        return NVML_SUCCESS;                                                                       \
    }

/* The same where the value depends on what processes do. */
#define LIVE_GETTER(function, type, expression)                                                    \
    ENTRY function(nvmlDevice_t handle, type *value)                                               \
    {                                                                                              \
        struct gpu gpu;                                                                            \
        TRY(open_live_gpu(&gpu, handle, value));                                                   \
        *value = (type)(expression);                                                               \
        return NVML_SUCCESS;                                                                       \
    }

/* One lock for the little that NVML itself keeps; whole again in a forked child. */
void session_lock(void);
void session_unlock(void);
