/* Which devices there are, and how they are found. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "identity.h"
#include "session.h"

ENTRY nvmlDeviceGetCount_v2(unsigned int *count)
{
    const struct sim_state *node;
    TRY(open_system(&node, count));
    *count = node->device_count;
    return NVML_SUCCESS;
}
TWIN(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

/* A lost device keeps its number and is counted, but has no handle, as with the real driver. */
static nvmlReturn_t give_handle(const struct sim_state *node, unsigned index, nvmlDevice_t *handle)
{
    struct gpu gpu = gpu_of(node, index);
    TRY(check_gpu(&gpu));
    *handle = handle_of(index);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *handle)
{
    const struct sim_state *node;
    TRY(open_system(&node, handle));
    REQUIRE(index < node->device_count, NVML_ERROR_INVALID_ARGUMENT);
    return give_handle(node, index, handle);
}
TWIN(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

ENTRY nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    const struct sim_state *node;
    TRY(open_system(&node, uuid && handle));
    for (unsigned index = 0; index < node->device_count; index++) {
        if (strcmp(node->devices[index].profile.uuid, uuid) == 0)
            return give_handle(node, index, handle);
    }
    return NVML_ERROR_NOT_FOUND;
}

/* The sixteen bytes that a uuid's digits stand for. */
static void uuid_bytes(const char *uuid, unsigned char bytes[16])
{
    unsigned digits = 0;
    memset(bytes, 0, 16);
    for (const char *digit = uuid + strlen("GPU-"); *digit && digits < 32; digit++) {
        if (!isxdigit((unsigned char)*digit))
            continue;
        int value = isdigit((unsigned char)*digit) ? *digit - '0' : tolower(*digit) - 'a' + 10;
        bytes[digits / 2] = (unsigned char)(bytes[digits / 2] << 4 | value);
        digits++;
    }
}

ENTRY nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *handle)
{
    const struct sim_state *node;
    unsigned char bytes[16];

    TRY(open_system(&node, uuid && handle));
    REQUIRE_VERSION(uuid, nvmlUUID_v1_t, 1);
    if (uuid->type == NVML_UUID_TYPE_ASCII)
        return nvmlDeviceGetHandleByUUID(uuid->value.str, handle);
    REQUIRE(uuid->type == NVML_UUID_TYPE_BINARY, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned index = 0; index < node->device_count; index++) {
        uuid_bytes(node->devices[index].profile.uuid, bytes);
        if (memcmp(bytes, uuid->value.bytes, sizeof(bytes)) == 0)
            return give_handle(node, index, handle);
    }
    return NVML_ERROR_NOT_FOUND;
}

ENTRY nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *handle)
{
    const struct sim_state *node;
    char own[SERIAL_BYTES];

    TRY(open_system(&node, serial && handle));
    for (unsigned index = 0; index < node->device_count; index++) {
        if (write_serial(&node->devices[index].profile, own) && strcmp(own, serial) == 0)
            return give_handle(node, index, handle);
    }
    return NVML_ERROR_NOT_FOUND;
}

/* domain:bus:device.function, where domain and function may be left out. */
static bool parse_bus_id(const char *text, unsigned *domain, unsigned *bus, unsigned *device)
{
    static const char *const forms[] = {"%8x:%2x:%2x.%1x%n", "%8x:%2x:%2x%n"};
    unsigned function;
    int read = 0;

    if (strlen(text) > 31)
        return false;
    if (sscanf(text, forms[0], domain, bus, device, &function, &read) == 4 && !text[read])
        return function == 0;
    if (sscanf(text, forms[1], domain, bus, device, &read) == 3 && !text[read])
        return true;
    *domain = 0;
    if (sscanf(text, "%2x:%2x.%1x%n", bus, device, &function, &read) == 3 && !text[read])
        return function == 0;
    return sscanf(text, "%2x:%2x%n", bus, device, &read) == 2 && !text[read];
}

ENTRY nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
    const struct sim_state *node;
    unsigned domain, bus, device;

    TRY(open_system(&node, bus_id && handle));
    REQUIRE(parse_bus_id(bus_id, &domain, &bus, &device), NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned index = 0; index < node->device_count; index++) {
        const struct sim_profile *profile = &node->devices[index].profile;
        if (profile->pci_domain == domain && profile->pci_bus == bus && device == 0)
            return give_handle(node, index, handle);
    }
    return NVML_ERROR_NOT_FOUND;
}
TWIN(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);
