/*
 * NVML as the container sees it: its own GPUs, in their order, with its slice of their memory.
 */
#include "device.h"
#include "ledger.h"
#include "nvml_device.h"

static bool is_hidden(nvmlDevice_t handle)
{
    return nvml_device_of(handle) < 0;
}

/* --- which GPUs there are -------------------------------------------------------------------- */

static nvmlReturn_t count_visible(unsigned *visible)
{
    unsigned count = 0;
    *visible = 0;
    const nvmlReturn_t result = REAL(nvmlDeviceGetCount_v2, &count);
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++) {
        nvmlDevice_t handle;
        if (REAL(nvmlDeviceGetHandleByIndex_v2, i, &handle) == NVML_SUCCESS && !is_hidden(handle))
            ++*visible;
    }
    return result;
}

static nvmlReturn_t find_visible(unsigned index, nvmlDevice_t *found)
{
    unsigned count = 0;
    const nvmlReturn_t result = REAL(nvmlDeviceGetCount_v2, &count);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t handle;
        if (REAL(nvmlDeviceGetHandleByIndex_v2, i, &handle) == NVML_SUCCESS && !is_hidden(handle) &&
            index-- == 0) {
            *found = handle;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

#define COUNTS(name)                                                                               \
    EXPORT nvmlReturn_t name(unsigned int *count)                                                  \
    {                                                                                              \
        ENTER_NVML(name, count);                                                                   \
        return count == NULL ? real.name(count) : count_visible(count);                            \
    }
COUNTS(nvmlDeviceGetCount)
COUNTS(nvmlDeviceGetCount_v2)

#define BY_INDEX(name)                                                                             \
    EXPORT nvmlReturn_t name(unsigned int index, nvmlDevice_t *device)                             \
    {                                                                                              \
        ENTER_NVML(name, index, device);                                                           \
        return device == NULL ? real.name(index, device) : find_visible(index, device);            \
    }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

#define BY_NAME(name, type)                                                                        \
    EXPORT nvmlReturn_t name(type wanted, nvmlDevice_t *device)                                    \
    {                                                                                              \
        ENTER_NVML(name, wanted, device);                                                          \
        const nvmlReturn_t result = REAL(name, wanted, device);                                    \
        return result == NVML_SUCCESS && is_hidden(*device) ? NVML_ERROR_NOT_FOUND : result;       \
    }
BY_NAME(nvmlDeviceGetHandleBySerial, const char *)
BY_NAME(nvmlDeviceGetHandleByUUID, const char *)
BY_NAME(nvmlDeviceGetHandleByUUIDV, const nvmlUUID_t *)
BY_NAME(nvmlDeviceGetHandleByPciBusId, const char *)
BY_NAME(nvmlDeviceGetHandleByPciBusId_v2, const char *)

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER_NVML(nvmlDeviceGetIndex, device, index);
    const nvmlReturn_t result = REAL(nvmlDeviceGetIndex, device, index);
    if (result != NVML_SUCCESS)
        return result;
    nvmlDevice_t other;
    for (unsigned place = 0; find_visible(place, &other) == NVML_SUCCESS; place++)
        if (other == device) {
            *index = place;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* --- lists of GPUs --------------------------------------------------------------------------- */

static void keep_visible(unsigned *count, nvmlDevice_t *devices)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++)
        if (!is_hidden(devices[i]))
            devices[kept++] = devices[i];
    *count = kept;
}

/*
 * Both lists are asked for with a count alone first; how many of them are visible is only known
 * with the list at hand, so it is fetched.
 */
#define LISTS_DEVICES(name, parameter, argument)                                                   \
    EXPORT nvmlReturn_t name(parameter, unsigned int *count, nvmlDevice_t *devices)                \
    {                                                                                              \
        ENTER_NVML(name, argument, count, devices);                                                \
        nvmlDevice_t all[DEVICES_MOST];                                                            \
        unsigned all_count = DEVICES_MOST;                                                         \
        if (count == NULL)                                                                         \
            return real.name(argument, count, devices);                                            \
        const nvmlReturn_t result = REAL(name, argument, &all_count, all);                         \
        if (result != NVML_SUCCESS)                                                                \
            return result;                                                                         \
        keep_visible(&all_count, all);                                                             \
        for (unsigned i = 0; devices != NULL && i < all_count && i < *count; i++)                  \
            devices[i] = all[i];                                                                   \
        *count = devices == NULL || all_count < *count ? all_count : *count;                       \
        return NVML_SUCCESS;                                                                       \
    }
#define COMMA ,
LISTS_DEVICES(nvmlDeviceGetTopologyNearestGpus,
              nvmlDevice_t device COMMA nvmlGpuTopologyLevel_t level, device COMMA level)
LISTS_DEVICES(nvmlSystemGetTopologyGpuSet, unsigned int cpu, cpu)

/* --- memory ---------------------------------------------------------------------------------- */

/* What of a device's memory is the container's; false when all of it is, or none is shown. */
static bool slice_of(nvmlDevice_t handle, unsigned long long *total, unsigned long long *used)
{
    const int device = nvml_device_of(handle);
    if (device < 0) {
        *total = *used = 0;
        return true;
    }
    const uint64_t limit = ledger_limit((unsigned)device);
    if (limit == UINT64_MAX)
        return false;
    *total = *total < limit ? *total : limit;
    *used = ledger_used((unsigned)device);
    *used = *used < *total ? *used : *total;
    return true;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER_NVML(nvmlDeviceGetMemoryInfo, device, memory);
    const nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo, device, memory);
    if (result == NVML_SUCCESS && slice_of(device, &memory->total, &memory->used)) {
        const unsigned long long left = memory->total - memory->used;
        memory->free = memory->free < left ? memory->free : left;
    }
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ENTER_NVML(nvmlDeviceGetMemoryInfo_v2, device, memory);
    const nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (result == NVML_SUCCESS && slice_of(device, &memory->total, &memory->used)) {
        const unsigned long long left = memory->total - memory->used;
        memory->free = memory->free < left ? memory->free : left;
        memory->reserved = 0;
    }
    return result;
}
