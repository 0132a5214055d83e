/*
 * Marks for a profiler, which there is none of: taken, and of no consequence.
 */
#include "driver.h"

ENTRY cuProfilerInitialize(const char *config_file, const char *output_file, CUoutput_mode mode)
{
    (void)config_file;
    (void)output_file;
    (void)mode;
    return CUDA_ERROR_NOT_SUPPORTED;
}

ENTRY cuProfilerStart(void)
{
    ENTER(context);
    (void)context;
    return CUDA_SUCCESS;
}

ENTRY cuProfilerStop(void)
{
    ENTER(context);
    (void)context;
    return CUDA_SUCCESS;
}
