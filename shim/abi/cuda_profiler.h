/*
 * The marks that a program sets for a profiler.
 */
#pragma once

#include "cuda_result.h"

typedef enum {
    CU_OUT_KEY_VALUE_PAIR = 0x00,
    CU_OUT_CSV = 0x01,
} CUoutput_mode;

CUresult cuProfilerInitialize(const char *config_file, const char *output_file,
                              CUoutput_mode output_mode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
