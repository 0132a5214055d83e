/*
 * Calls of NVML that only the shim needs.
 */
#pragma once

#include "nvml_abi.h"

typedef struct {
    unsigned int pid; /* whose statistics are asked for */
    unsigned int isRunning;
    unsigned int gpuUtilization;
    unsigned int memoryUtilization;
    unsigned long long maxMemoryUsage;
    unsigned int sampleCount;
    unsigned long long sumGpuUtil;
    unsigned long long sumFbUtil;
    unsigned long long time;
    unsigned long long startTime;
} nvmlAccountingStats_v2_t;

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t, nvmlAccountingStats_v2_t *);
