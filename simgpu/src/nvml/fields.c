/* Values by field number: what monitoring agents read in bulk. */
#include <string.h>

#include "activity.h"
#include "ecc.h"
#include "nvlink.h"
#include "power.h"
#include "sensors.h"

/* The numbers of the fields that have a value here; ranges are inclusive. */
enum {
    FIELD_ECC_CURRENT = 1,
    FIELD_ECC_PENDING = 2,
    FIELD_ECC_DOUBLE_VOLATILE_TOTAL = 4,
    FIELD_ECC_DOUBLE_AGGREGATE_TOTAL = 6,
    FIELD_ECC_DOUBLE_VOLATILE_DEVICE = 12,
    FIELD_ECC_DOUBLE_AGGREGATE_DEVICE = 23,
    FIELD_ECC_LAST = 28,
    FIELD_RETIRED_FIRST = 29,
    FIELD_RETIRED_LAST = 31,
    FIELD_NVLINK_COUNTERS_FIRST = 32,
    FIELD_NVLINK_COUNTERS_LAST = 73,
    FIELD_VIOLATIONS_FIRST = 74,
    FIELD_VIOLATIONS_LAST = 81,
    FIELD_MEMORY_TEMPERATURE = 82,
    FIELD_TOTAL_ENERGY = 83,
    FIELD_NVLINK_SPEED_FIRST = 84,
    FIELD_NVLINK_SPEED_COMMON = 90,
    FIELD_NVLINK_COUNT = 91,
    FIELD_RETIRED_PENDING_SINGLE = 92,
    FIELD_RETIRED_PENDING_DOUBLE = 93,
    FIELD_PCIE_REPLAYS = 94,
    FIELD_PCIE_REPLAY_ROLLOVERS = 95,
    FIELD_NVLINK_MORE_COUNTERS_FIRST = 96, /* links 6 to 11 */
    FIELD_NVLINK_MORE_COUNTERS_LAST = 131,
    FIELD_NVLINK_MORE_SPEEDS_FIRST = 132,
    FIELD_NVLINK_MORE_SPEEDS_LAST = 137,
    FIELD_NVLINK_THROUGHPUT_FIRST = 138,
    FIELD_NVLINK_THROUGHPUT_LAST = 141,
    FIELD_REMAPPED_FIRST = 142,
    FIELD_REMAPPED_LAST = 145,
    FIELD_NVLINK_GET_SPEED = 164,
    FIELD_NVLINK_GET_STATE = 165,
    FIELD_NVLINK_GET_VERSION = 166,
    FIELD_POWER_AVERAGE = 185,
    FIELD_POWER_INSTANT = 186,
    FIELD_POWER_LIMIT_LOWEST = 187,
    FIELD_POWER_LIMIT_HIGHEST = 188,
    FIELD_POWER_LIMIT_DEFAULT = 189,
    FIELD_POWER_LIMIT_CURRENT = 190,
    FIELD_ENERGY = 191,
    FIELD_POWER_LIMIT_REQUESTED = 192,
    FIELD_MARGIN_SHUTDOWN = 193,
    FIELD_MARGIN_SLOWDOWN = 194,
    FIELD_MARGIN_MEMORY = 195,
    FIELD_MARGIN_GPU = 196,
    FIELD_PCIE_BYTES_SENT = 197,
    FIELD_PCIE_BYTES_RECEIVED = 198,
    FIELD_RECOVERY_ACTION = 230,
};

/* A value of FIELD_RECOVERY_ACTION; 0 is none. */
enum { RECOVERY_GPU_RESET = 1 };

static nvmlReturn_t answer_number(nvmlFieldValue_t *field, unsigned value)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.uiVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_large(nvmlFieldValue_t *field, unsigned long long value)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = value;
    return NVML_SUCCESS;
}

/* How far a threshold lies from where clocks would be lowered. */
static nvmlReturn_t answer_margin(nvmlFieldValue_t *field, const struct gpu *gpu, int celsius)
{
    REQUIRE(gpu->profile->architecture >= NVML_DEVICE_ARCH_ADA, NVML_ERROR_NOT_SUPPORTED);
    field->valueType = NVML_VALUE_TYPE_SIGNED_INT;
    field->value.siVal = MAXIMUM_CELSIUS - celsius;
    return NVML_SUCCESS;
}

static nvmlReturn_t read_ecc(nvmlFieldValue_t *field, const struct gpu *gpu)
{
    switch (field->fieldId) {
    case FIELD_ECC_CURRENT:
    case FIELD_ECC_PENDING:
        REQUIRE(supports_ecc(gpu->profile), NVML_ERROR_NOT_SUPPORTED);
        return answer_number(field, ecc_enabled(gpu->profile));
    case FIELD_ECC_DOUBLE_VOLATILE_TOTAL:
    case FIELD_ECC_DOUBLE_AGGREGATE_TOTAL:
    case FIELD_ECC_DOUBLE_VOLATILE_DEVICE:
    case FIELD_ECC_DOUBLE_AGGREGATE_DEVICE:
        REQUIRE(ecc_enabled(gpu->profile), NVML_ERROR_NOT_SUPPORTED);
        return answer_large(field, uncorrected_errors(gpu));
    default:
        REQUIRE(ecc_enabled(gpu->profile), NVML_ERROR_NOT_SUPPORTED);
        return answer_large(field, 0);
    }
}

/* Fields about links; for those about one link, `scopeId` is its number. */
static nvmlReturn_t read_nvlink(nvmlFieldValue_t *field, const struct gpu *gpu)
{
    unsigned count = link_count(gpu->profile);
    if (field->fieldId == FIELD_NVLINK_COUNT)
        return answer_number(field, count);
    REQUIRE(count > 0, NVML_ERROR_NOT_SUPPORTED);
    switch (field->fieldId) {
    case FIELD_NVLINK_SPEED_FIRST ... FIELD_NVLINK_SPEED_COMMON:
    case FIELD_NVLINK_MORE_SPEEDS_FIRST ... FIELD_NVLINK_MORE_SPEEDS_LAST:
        return answer_number(field, link_megabytes_per_second(gpu->profile));
    case FIELD_NVLINK_GET_SPEED:
    case FIELD_NVLINK_GET_STATE:
    case FIELD_NVLINK_GET_VERSION:
        REQUIRE(field->scopeId < count, NVML_ERROR_INVALID_ARGUMENT);
        if (field->fieldId == FIELD_NVLINK_GET_STATE)
            return answer_number(field, 1);
        if (field->fieldId == FIELD_NVLINK_GET_VERSION)
            return answer_number(field, gpu->profile->nvlink_version);
        return answer_number(field, link_megabytes_per_second(gpu->profile));
    default:
        return answer_large(field, 0); /* errors and traffic: none is simulated */
    }
}

static nvmlReturn_t read_power(nvmlFieldValue_t *field, const struct gpu *gpu)
{
    switch (field->fieldId) {
    case FIELD_POWER_AVERAGE:
    case FIELD_POWER_INSTANT:
        return answer_number(field, power_milliwatts(gpu->profile, recent_percent(gpu)));
    case FIELD_POWER_LIMIT_LOWEST:
        return answer_number(field, least_power_limit_milliwatts(gpu->profile));
    case FIELD_TOTAL_ENERGY:
    case FIELD_ENERGY:
        return answer_large(field, energy_millijoules(gpu));
    default:
        return answer_number(field, power_limit_milliwatts(gpu->profile));
    }
}

static nvmlReturn_t read_repair(nvmlFieldValue_t *field, const struct gpu *gpu)
{
    bool is_about_rows = field->fieldId >= FIELD_REMAPPED_FIRST;
    bool has_rows = gpu->profile->architecture >= NVML_DEVICE_ARCH_AMPERE;
    REQUIRE(ecc_enabled(gpu->profile) && has_rows == is_about_rows, NVML_ERROR_NOT_SUPPORTED);
    return answer_number(field, 0);
}

/* An error that ends whatever runs there stays until the GPU is reset, which `clear` stands for. */
static bool needs_reset(const struct gpu *gpu)
{
    for (unsigned index = 0; index < SIM_FAULTS; index++)
        if (__atomic_load_n(&gpu->device->faults[index].call, __ATOMIC_RELAXED) == SIM_CALL_ANY)
            return true;
    return false;
}

static nvmlReturn_t read_field(nvmlFieldValue_t *field, const struct gpu *gpu)
{
    switch (field->fieldId) {
    case FIELD_ECC_CURRENT ... FIELD_ECC_LAST:
        return read_ecc(field, gpu);
    case FIELD_RETIRED_FIRST ... FIELD_RETIRED_LAST:
    case FIELD_RETIRED_PENDING_SINGLE ... FIELD_RETIRED_PENDING_DOUBLE:
    case FIELD_REMAPPED_FIRST ... FIELD_REMAPPED_LAST:
        return read_repair(field, gpu);
    case FIELD_NVLINK_COUNTERS_FIRST ... FIELD_NVLINK_COUNTERS_LAST:
    case FIELD_NVLINK_SPEED_FIRST ... FIELD_NVLINK_COUNT:
    case FIELD_NVLINK_MORE_COUNTERS_FIRST ... FIELD_NVLINK_THROUGHPUT_LAST:
    case FIELD_NVLINK_GET_SPEED ... FIELD_NVLINK_GET_VERSION:
        return read_nvlink(field, gpu);
    case FIELD_TOTAL_ENERGY:
    case FIELD_POWER_AVERAGE ... FIELD_POWER_LIMIT_REQUESTED:
        return read_power(field, gpu);
    case FIELD_VIOLATIONS_FIRST ... FIELD_VIOLATIONS_LAST:
    case FIELD_PCIE_BYTES_SENT ... FIELD_PCIE_BYTES_RECEIVED:
        return answer_large(field, 0);
    case FIELD_PCIE_REPLAYS ... FIELD_PCIE_REPLAY_ROLLOVERS:
        return answer_number(field, 0);
    case FIELD_RECOVERY_ACTION:
        return answer_number(field, needs_reset(gpu) ? RECOVERY_GPU_RESET : 0);
    case FIELD_MEMORY_TEMPERATURE:
        REQUIRE(has_stacked_memory(gpu->profile), NVML_ERROR_NOT_SUPPORTED);
        return answer_number(field, memory_celsius(recent_percent(gpu)));
    case FIELD_MARGIN_SHUTDOWN:
        return answer_margin(field, gpu, SHUTDOWN_CELSIUS);
    case FIELD_MARGIN_SLOWDOWN:
        return answer_margin(field, gpu, SLOWDOWN_CELSIUS);
    case FIELD_MARGIN_MEMORY:
        return answer_margin(field, gpu, MEMORY_MAXIMUM_CELSIUS);
    case FIELD_MARGIN_GPU:
        return answer_margin(field, gpu, MAXIMUM_CELSIUS);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* The call succeeds if it could try: each field carries its own answer. */
ENTRY nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, fields && count > 0));
    for (int number = 0; number < count; number++) {
        nvmlFieldValue_t *field = &fields[number];
        field->value = (nvmlValue_t){.ullVal = 0};
        field->timestamp = (long long)window_timestamp(last_window(&gpu));
        field->latencyUsec = 0;
        field->nvmlReturn = read_field(field, &gpu);
    }
    return NVML_SUCCESS;
}

/* There is nothing to clear: what could be is always zero. */
ENTRY nvmlDeviceClearFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, fields && count > 0));
    for (int number = 0; number < count; number++)
        fields[number].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
