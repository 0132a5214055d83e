/*
 * NVML's devices and the account's.
 */
#pragma once

#include "hook.h"

/*
 * First line of a replacement: returns from it when there is no NVML, or when it is NVML itself
 * that calls.
 */
#define ENTER_NVML(name, ...)                                                                      \
    do {                                                                                           \
        if (UNLIKELY(!driver_load(LIBRARY_NVML)))                                                  \
            return NVML_ERROR_LIBRARY_NOT_FOUND;                                                   \
        if (UNLIKELY(thread.inside != 0))                                                          \
            return real.name(__VA_ARGS__);                                                         \
    } while (0)

/* NVML's handle of one of the account's devices, for our own questions; false: there is no NVML. */
bool nvml_device_open(int device, nvmlDevice_t *handle);

/*
 * The account's number of a device that NVML has handed out; below zero when it is hidden, as all
 * are without limits.
 */
int nvml_device_of(nvmlDevice_t handle);
