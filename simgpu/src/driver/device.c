/* Devices: their names and places, and what can be asked about one without a context. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

CUresult device_get(CUdevice ordinal, struct device **device)
{
    TRY(driver_check());
    if (ordinal < 0 || (unsigned)ordinal >= driver.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = &driver.devices[ordinal];
    return CUDA_SUCCESS;
}

#define DEVICE(name, ordinal)                                                                      \
    struct device *name = NULL;                                                                    \
    TRY(device_get(ordinal, &name))

ENTRY cuDeviceGetCount(int *count)
{
    TRY(driver_check());
    REQUIRE(count != NULL);
    *count = (int)driver.device_count;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGet(CUdevice *handle, int ordinal)
{
    TRY(driver_check());
    REQUIRE(handle != NULL);
    DEVICE(device, ordinal);
    *handle = device->ordinal;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetName(char *name, int length, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(name != NULL && length > 0);
    snprintf(name, (size_t)length, "%s", device->profile->name);
    return CUDA_SUCCESS;
}

static unsigned hex_digit(char digit)
{
    return (unsigned)(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
}

/* "GPU-" and 32 hexadecimal digits in groups, as 16 bytes. */
ENTRY cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(uuid != NULL);
    memset(uuid, 0, sizeof *uuid);
    unsigned digits = 0;
    for (const char *text = device->profile->uuid + 4; *text != '\0' && digits < 32; text++) {
        if (*text == '-')
            continue;
        unsigned char *byte = (unsigned char *)&uuid->bytes[digits++ / 2];
        *byte = (unsigned char)((unsigned)*byte << 4 | hex_digit(*text));
    }
    return CUDA_SUCCESS;
}
TWIN(cuDeviceGetUuid, cuDeviceGetUuid_v2);

ENTRY cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(bytes != NULL);
    *bytes = device->profile->memory_bytes;
    return CUDA_SUCCESS;
}

/* From the time of 32-bit sizes: as much as fits. */
ENTRY cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(bytes != NULL);
    const uint64_t total = device->profile->memory_bytes;
    *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(value != NULL);
    return device_attribute(device, attribute, value);
}

ENTRY cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(major != NULL && minor != NULL);
    *major = (int)device->profile->compute_major;
    *minor = (int)device->profile->compute_minor;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetProperties(CUdevprop *properties, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(properties != NULL);
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } fields[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &properties->maxThreadsPerBlock},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &properties->maxThreadsDim[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &properties->maxThreadsDim[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &properties->maxThreadsDim[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &properties->maxGridSize[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &properties->maxGridSize[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &properties->maxGridSize[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &properties->sharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &properties->totalConstantMemory},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &properties->SIMDWidth},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &properties->memPitch},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &properties->regsPerBlock},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &properties->clockRate},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &properties->textureAlign},
    };
    for (size_t field = 0; field < sizeof fields / sizeof fields[0]; field++)
        TRY(device_attribute(device, fields[field].attribute, fields[field].value));
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetPCIBusId(char *text, int length, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(text != NULL && length > 0);
    const int needed = snprintf(text, (size_t)length, "%04X:%02X:00.0", device->profile->pci_domain,
                                device->profile->pci_bus);
    REQUIRE(needed < length);
    return CUDA_SUCCESS;
}

/* Domain, device and function may be left out. */
ENTRY cuDeviceGetByPCIBusId(CUdevice *handle, const char *text)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && text != NULL);
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned slot = 0;
    char rest = '\0';
    if (sscanf(text, "%x:%x:%x.%*u%c", &domain, &bus, &slot, &rest) != 3) {
        domain = 0;
        REQUIRE(sscanf(text, "%x:%x", &bus, &slot) == 2);
    }
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        const struct sim_profile *profile = driver.devices[ordinal].profile;
        if (profile->pci_domain == domain && profile->pci_bus == bus && slot == 0) {
            *handle = (CUdevice)ordinal;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

ENTRY cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(supported != NULL && type < CU_EXEC_AFFINITY_TYPE_MAX);
    /* Parts of a device by SM count exist under MPS only, which is not simulated. */
    *supported = 0;
    return CUDA_SUCCESS;
}

/* Windows only. */
ENTRY cuDeviceGetLuid(char *luid, unsigned *mask, CUdevice ordinal)
{
    DEVICE(device, ordinal);
    REQUIRE(luid != NULL && mask != NULL);
    return CUDA_ERROR_NOT_SUPPORTED;
}

ENTRY cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                         CUdevice ordinal)
{
    (void)format;
    DEVICE(device, ordinal);
    REQUIRE(width != NULL && (channels == 1 || channels == 2 || channels == 4));
    int most = 0;
    TRY(device_attribute(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &most));
    *width = (size_t)most;
    return CUDA_SUCCESS;
}

ENTRY cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                 CUflushGPUDirectRDMAWritesScope scope)
{
    ENTER(context);
    REQUIRE(target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
    REQUIRE(scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
            scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
    return CUDA_SUCCESS;
}

/* --- notifications ------------------------------------------------------------------------- */

/* The one thing that is told asynchronously, a memory budget that was passed, does not exist here:
 * programs can ask to be told, and never are. */
static struct table listeners = TABLE(CUasyncCallback, 1 << 12);

ENTRY cuDeviceRegisterAsyncNotification(CUdevice ordinal, CUasyncCallback callback, void *argument,
                                        CUasyncCallbackHandle *handle)
{
    (void)argument;
    DEVICE(device, ordinal);
    REQUIRE(callback != NULL && handle != NULL);
    CUasyncCallback *listener = table_take(&listeners);
    if (listener == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *listener = callback;
    *handle = (CUasyncCallbackHandle)(uintptr_t)listener;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceUnregisterAsyncNotification(CUdevice ordinal, CUasyncCallbackHandle handle)
{
    DEVICE(device, ordinal);
    REQUIRE(table_holds(&listeners, handle));
    table_give(&listeners, (void *)handle);
    return CUDA_SUCCESS;
}
