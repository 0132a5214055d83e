/*
 * Libraries and their kernels.
 */
#pragma once

#include "module.h"

struct library {
    struct image *image;
    struct kernel *kernels;
    struct module *modules; /* one for each context that has used it */
};

/* A living kernel by its handle. */
CUresult kernel_get(CUkernel handle, struct kernel **kernel);
