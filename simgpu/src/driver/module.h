/*
 * Modules, libraries, and the functions in them.
 */
#pragma once

#include "image.h"
#include "order.h"

/* An attribute that was set on a kernel holds for its functions that are made later. */
struct function_settings {
    int max_dynamic_bytes; /* of shared memory; -1: what needs no permission */
    int carveout_percent;  /* -1: the driver's choice */
    bool non_portable_cluster;
    int cluster_policy;
    int cluster[3]; /* 0: as the code says */
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

/* What cuFuncSetBlockShape and the cuParam calls leave for cuLaunchGrid. */
struct old_launch {
    unsigned block[3];
    unsigned shared_bytes;
    size_t parameter_bytes;
    uint8_t parameters[4096];
};

struct module {
    struct module *next; /* of the same library */
    struct context *context;
    struct library *library; /* NULL: loaded by itself */
    struct image *image;
    CUdeviceptr data; /* all globals; 0: there are none */
    struct function *functions;
};

/* What an SM of the device has to share out between blocks. */
struct sm_limits {
    unsigned threads;
    unsigned blocks;
    unsigned registers;
    unsigned shared_bytes;
    unsigned reserved_shared_bytes; /* of each block */
};

/* How a launch's duration is found; see duration.c. */
enum timing { TIMING_MODEL, TIMING_PARAMETER, TIMING_FIXED };

struct function {
    struct function *next; /* of the same module */
    struct context *context;
    struct module *module;
    struct kernel *kernel; /* NULL: of a module that was loaded by itself */
    const struct image_function *code;
    struct image_function *own_code; /* of an image that could not be read */
    uint64_t serial;                 /* tells it from others at the same address */
    unsigned max_threads;            /* per block */
    unsigned max_shared_bytes;       /* static and dynamic, with what was allowed so far */
    struct sm_limits sm;
    enum timing timing;
    uint64_t fixed_ns;
    bool is_loaded;
    struct function_settings settings;
    struct old_launch *old;
};

struct kernel {
    struct kernel *next; /* of the same library */
    struct library *library;
    const struct image_function *code;
    struct image_function *own_code;
    struct function *recent;                        /* the last one that it was asked for */
    struct function_settings settings[SIM_DEVICES]; /* by ordinal */
};

/* --- not under the lock -------------------------------------------------------------------- */

/* The function that a kernel is in the context, made on first use. */
CUresult kernel_function(CUkernel handle, struct context *context, struct function **function);

/* The function that a CUfunction, or a CUkernel in its place, means in the context. */
CUresult function_get(struct context *context, CUfunction handle, struct function **function);

/* Makes a module of an image, with memory for its globals; takes a hold of the image. */
CUresult module_make(struct context *context, struct image *image, struct library *library,
                     struct module **module);

/* Reads an image that the context's device can run. */
CUresult code_read(const struct device *device, const void *data, size_t bytes,
                   struct image **image);

/* Ends a module and frees its globals; nothing if somebody else has done so meanwhile. */
void module_free(struct module *module);

/* Whether the device can run the image. */
CUresult code_check(const struct device *device, const struct image *image);

/* The module of a library in a context, made on first use. */
CUresult library_module(struct library *library, struct context *context, struct module **module);

/* --- under the lock ------------------------------------------------------------------------ */

bool function_lives(const struct function *function);
bool module_lives(const struct module *module);

/* The function of that name in the module, made on first use. */
CUresult module_function(struct module *module, const char *name, struct function **function);
/* --- attributes ---------------------------------------------------------------------------- */

void settings_reset(struct function_settings *settings);
CUresult settings_set(struct function_settings *settings, const struct image_function *code,
                      const struct device *device, CUfunction_attribute attribute, int value);
void function_limit(struct function *function);
CUresult code_attribute(const struct image *image, const struct image_function *code,
                        const struct function_settings *settings, const struct device *device,
                        CUfunction_attribute attribute, int *value);

/* Kernels that an opaque image may contain: a name is all that is known of them. */
struct image_function *opaque_function(const char *name);
void opaque_function_free(struct image_function *code);

/* What happens to them when a context ends and in a forked child. */
void modules_close(struct context *context);
void modules_forget(void);
void libraries_close(struct context *context);
void libraries_forget(void);
void links_forget(void);
