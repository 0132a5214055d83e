/*
 * Launching as in CUDA 2: the function itself keeps block shape and parameters.
 */
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* The function, and where its next launch is prepared. */
static CUresult prepare(CUfunction handle, struct old_launch **old)
{
    ENTER(context);
    struct function *function = NULL;
    TRY(function_get(context, handle, &function));
    order_lock();
    if (function->old == NULL) {
        function->old = calloc(1, sizeof *function->old);
        if (function->old != NULL)
            function->old->block[0] = function->old->block[1] = function->old->block[2] = 1;
    }
    *old = function->old;
    order_unlock();
    return *old != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    struct old_launch *old = NULL;
    TRY(prepare(function, &old));
    REQUIRE(x > 0 && y > 0 && z > 0);
    old->block[0] = (unsigned)x;
    old->block[1] = (unsigned)y;
    old->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

ENTRY cuFuncSetSharedSize(CUfunction function, unsigned bytes)
{
    struct old_launch *old = NULL;
    TRY(prepare(function, &old));
    old->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

ENTRY cuParamSetSize(CUfunction function, unsigned bytes)
{
    struct old_launch *old = NULL;
    TRY(prepare(function, &old));
    REQUIRE(bytes <= sizeof old->parameters);
    old->parameter_bytes = bytes;
    return CUDA_SUCCESS;
}

ENTRY cuParamSetv(CUfunction function, int offset, void *value, unsigned bytes)
{
    struct old_launch *old = NULL;
    TRY(prepare(function, &old));
    REQUIRE(offset >= 0 && value != NULL && bytes <= sizeof old->parameters &&
            (unsigned)offset <= sizeof old->parameters - bytes);
    memcpy(old->parameters + offset, value, bytes);
    return CUDA_SUCCESS;
}

ENTRY cuParamSeti(CUfunction function, int offset, unsigned value)
{
    return cuParamSetv(function, offset, &value, sizeof value);
}

ENTRY cuParamSetf(CUfunction function, int offset, float value)
{
    return cuParamSetv(function, offset, &value, sizeof value);
}

ENTRY cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    struct old_launch *old = NULL;
    TRY(prepare(function, &old));
    REQUIRE(width > 0 && height > 0);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old->parameters, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &old->parameter_bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, old->block[0],
                          old->block[1], old->block[2], old->shared_bytes, stream, NULL, extra);
}

ENTRY cuLaunchGrid(CUfunction function, int width, int height)
{
    return cuLaunchGridAsync(function, width, height, NULL);
}

ENTRY cuLaunch(CUfunction function)
{
    return cuLaunchGridAsync(function, 1, 1, NULL);
}
