/*
 * Which of the account's devices an NVML handle is, by uuid.
 */
#include "nvml_device.h"

#include <string.h>

#include "device.h"
#include "ledger.h"

enum { UUID_CHARACTERS = 96 };

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* GPU-xxxxxxxx-xxxx-... as 16 bytes. */
static bool uuid_parse(const char *text, uint8_t uuid[16])
{
    if (strncmp(text, "GPU-", 4) != 0)
        return false;
    unsigned digits = 0;
    memset(uuid, 0, 16);
    for (text += 4; *text != '\0' && digits < 32; text++) {
        if (*text == '-')
            continue;
        const int value = digit(*text);
        if (value < 0)
            return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | value);
        digits++;
    }
    return digits == 32;
}

int nvml_device_of(nvmlDevice_t handle)
{
    char text[UUID_CHARACTERS];
    uint8_t uuid[16];
    if (!ledger_ready() || REAL(nvmlDeviceGetUUID, handle, text, sizeof text) != NVML_SUCCESS ||
        !uuid_parse(text, uuid))
        return DEVICE_HIDDEN;
    return ledger_find(uuid);
}

bool nvml_device_open(int device, nvmlDevice_t *handle)
{
    static uint8_t is_open;
    if (!__atomic_load_n(&is_open, __ATOMIC_ACQUIRE)) {
        if (!driver_load(LIBRARY_NVML) || REAL(nvmlInit_v2) != NVML_SUCCESS)
            return false;
        __atomic_store_n(&is_open, 1, __ATOMIC_RELEASE);
    }
    unsigned count = 0;
    (void)REAL(nvmlDeviceGetCount_v2, &count);
    for (unsigned i = 0; i < count; i++)
        if (REAL(nvmlDeviceGetHandleByIndex_v2, i, handle) == NVML_SUCCESS &&
            nvml_device_of(*handle) == device)
            return true;
    return false;
}
