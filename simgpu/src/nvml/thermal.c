/* Temperatures and fans. */
#include "activity.h"
#include "sensors.h"

ENTRY nvmlDeviceGetTemperature(nvmlDevice_t handle, nvmlTemperatureSensors_t sensor,
                               unsigned int *celsius)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, celsius && (unsigned)sensor < NVML_TEMPERATURE_COUNT));
    *celsius = temperature_celsius(recent_percent(&gpu));
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, temperature));
    REQUIRE_VERSION(temperature, nvmlTemperature_v1_t, 1);
    REQUIRE((unsigned)temperature->sensorType < NVML_TEMPERATURE_COUNT,
            NVML_ERROR_INVALID_ARGUMENT);
    temperature->temperature = (int)temperature_celsius(recent_percent(&gpu));
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, nvmlTemperatureThresholds_t type,
                                        unsigned int *celsius)
{
    static const unsigned thresholds[] = {
        [NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = SHUTDOWN_CELSIUS,
        [NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = SLOWDOWN_CELSIUS,
        [NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = MEMORY_MAXIMUM_CELSIUS,
        [NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = MAXIMUM_CELSIUS,
    };
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, celsius && (unsigned)type < NVML_TEMPERATURE_THRESHOLD_COUNT));
    REQUIRE(type <= NVML_TEMPERATURE_THRESHOLD_GPU_MAX, NVML_ERROR_NOT_SUPPORTED);
    *celsius = thresholds[type];
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, nvmlMarginTemperature_t *margin)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, margin));
    REQUIRE_VERSION(margin, nvmlMarginTemperature_v1_t, 1);
    REQUIRE(gpu.profile->architecture >= NVML_DEVICE_ARCH_ADA, NVML_ERROR_NOT_SUPPORTED);
    margin->marginTemperature = MAXIMUM_CELSIUS - (int)temperature_celsius(recent_percent(&gpu));
    return NVML_SUCCESS;
}

/* --- fans: boards for servers have none of their own --------------------------------------- */

GETTER(nvmlDeviceGetNumFans, unsigned int, fan_count(gpu.profile))

static nvmlReturn_t read_fan(const struct gpu *gpu, unsigned int fan, unsigned int *percent)
{
    REQUIRE(fan_count(gpu->profile) > 0, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(fan < fan_count(gpu->profile), NVML_ERROR_INVALID_ARGUMENT);
    *percent = fan_percent(recent_percent(gpu));
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetFanSpeed_v2(nvmlDevice_t handle, unsigned int fan, unsigned int *percent)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, percent));
    return read_fan(&gpu, fan, percent);
}
TWIN(nvmlDeviceGetTargetFanSpeed, nvmlDeviceGetFanSpeed_v2);

ENTRY nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned int *percent)
{
    return nvmlDeviceGetFanSpeed_v2(handle, 0, percent);
}

ENTRY nvmlDeviceGetFanSpeedRPM(nvmlDevice_t handle, nvmlFanSpeedInfo_t *info)
{
    struct gpu gpu;
    unsigned int percent;

    TRY(open_live_gpu(&gpu, handle, info));
    REQUIRE_VERSION(info, nvmlFanSpeedInfo_v1_t, 1);
    TRY(read_fan(&gpu, info->fan, &percent));
    info->speed = percent * 33;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t handle, unsigned int *lowest, unsigned int *highest)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, lowest && highest));
    REQUIRE(fan_count(gpu.profile) > 0, NVML_ERROR_NOT_SUPPORTED);
    *lowest = fan_percent(0);
    *highest = 100;
    return NVML_SUCCESS;
}
