/* What a device is: its names, numbers and firmware. */
#include "identity.h"

#include <stdio.h>
#include <string.h>

#include "traits.h"

/* Depends on nothing but the uuid, as everything that tells two boards apart. */
static uint64_t fingerprint(const struct sim_profile *profile)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *letter = profile->uuid; *letter; letter++)
        hash = (hash ^ (unsigned char)*letter) * UINT64_C(1099511628211);
    return hash;
}

bool write_serial(const struct sim_profile *profile, char serial[SERIAL_BYTES])
{
    uint64_t number = fingerprint(profile) % UINT64_C(1000000000);
    snprintf(serial, SERIAL_BYTES, "1650%09llu", (unsigned long long)number);
    return !is_consumer(profile);
}

ENTRY nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, name));
    return answer_text(name, length, gpu.profile->name);
}

ENTRY nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, uuid));
    return answer_text(uuid, length, gpu.profile->uuid);
}

ENTRY nvmlDeviceGetSerial(nvmlDevice_t handle, char *serial, unsigned int length)
{
    struct gpu gpu;
    char text[SERIAL_BYTES];
    TRY(open_gpu(&gpu, handle, serial));
    REQUIRE(write_serial(gpu.profile, text), NVML_ERROR_NOT_SUPPORTED);
    return answer_text(serial, length, text);
}

ENTRY nvmlDeviceGetBoardPartNumber(nvmlDevice_t handle, char *number, unsigned int length)
{
    struct gpu gpu;
    char text[32];
    TRY(open_gpu(&gpu, handle, number));
    REQUIRE(!is_consumer(gpu.profile), NVML_ERROR_NOT_SUPPORTED);
    snprintf(text, sizeof(text), "900-2%04X-0000-000", gpu.profile->pci_device_id >> 16);
    return answer_text(number, length, text);
}

ENTRY nvmlDeviceGetVbiosVersion(nvmlDevice_t handle, char *version, unsigned int length)
{
    struct gpu gpu;
    char text[32];
    TRY(open_gpu(&gpu, handle, version));
    snprintf(text, sizeof(text), "%02X.00.%02X.00.01", 0x85 + gpu.profile->architecture,
             gpu.profile->pci_device_id >> 16 & 0xff);
    return answer_text(version, length, text);
}

ENTRY nvmlDeviceGetInforomImageVersion(nvmlDevice_t handle, char *version, unsigned int length)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, version));
    REQUIRE(!is_consumer(gpu.profile), NVML_ERROR_NOT_SUPPORTED);
    return answer_text(version, length, "G500.0000.00.01");
}

ENTRY nvmlDeviceGetInforomVersion(nvmlDevice_t handle, nvmlInforomObject_t object, char *version,
                                  unsigned int length)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, version && (unsigned)object < NVML_INFOROM_COUNT));
    REQUIRE(!is_consumer(gpu.profile) && object != NVML_INFOROM_POWER, NVML_ERROR_NOT_SUPPORTED);
    return answer_text(version, length, object == NVML_INFOROM_ECC ? "6.16" : "2.0");
}

ENTRY nvmlDeviceValidateInforom(nvmlDevice_t handle)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, true));
    return is_consumer(gpu.profile) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* Without a length: the documentation asks for a buffer of 64 bytes at least. */
ENTRY nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t handle, char *version)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, version));
    REQUIRE(gpu.profile->architecture >= NVML_DEVICE_ARCH_TURING, NVML_ERROR_NOT_SUPPORTED);
    return answer_text(version, 64, gpu.node->driver_version);
}

ENTRY nvmlDeviceGetGspFirmwareMode(nvmlDevice_t handle, unsigned int *enabled,
                                   unsigned int *is_default)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, enabled && is_default));
    *enabled = *is_default = gpu.profile->architecture >= NVML_DEVICE_ARCH_TURING;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceOnSameBoard(nvmlDevice_t first, nvmlDevice_t second, int *same)
{
    struct gpu pair[2];
    TRY(open_pair(pair, first, second, same));
    *same = pair[0].index == pair[1].index;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, major && minor));
    *major = (int)gpu.profile->compute_major;
    *minor = (int)gpu.profile->compute_minor;
    return NVML_SUCCESS;
}

GETTER(nvmlDeviceGetIndex, unsigned int, gpu.index)
GETTER(nvmlDeviceGetMinorNumber, unsigned int, gpu.index)
GETTER(nvmlDeviceGetModuleId, unsigned int, gpu.profile->nvlink_version ? gpu.index + 1 : 0)
GETTER(nvmlDeviceGetBoardId, unsigned int, gpu.profile->pci_bus << 8)
GETTER(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, gpu.profile->brand)
GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, gpu.profile->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned int, gpu.profile->sm_count *cores_per_sm(gpu.profile))
GETTER(nvmlDeviceGetInforomConfigurationChecksum, unsigned int, fingerprint(gpu.profile))
GETTER(nvmlDeviceGetIrqNum, unsigned int, 64 + gpu.index)
GETTER(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
GETTER(nvmlDeviceGetPowerSource, nvmlPowerSource_t, NVML_POWER_SOURCE_AC)
