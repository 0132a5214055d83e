/* Power and energy. */
#include "power.h"

#include "activity.h"
#include "sensors.h"

uint64_t energy_millijoules(const struct gpu *gpu)
{
    /* Milliwatts times nanoseconds are picojoules, of which 64 bits hold no more than hours. */
    unsigned __int128 idle = idle_milliwatts(gpu->profile);
    unsigned __int128 extra = loaded_milliwatts(gpu->profile) - idle_milliwatts(gpu->profile);
    uint64_t lifetime_ns = sim_now() - gpu->node->made_wall_ns;
    return (uint64_t)((idle * lifetime_ns + extra * total_busy_ns(gpu)) / 1000000000);
}

unsigned power_limit_milliwatts(const struct sim_profile *profile)
{
    return profile->power_limit_watts * 1000;
}

unsigned least_power_limit_milliwatts(const struct sim_profile *profile)
{
    return profile->power_limit_watts * 500;
}

LIVE_GETTER(nvmlDeviceGetPowerUsage, unsigned int,
            power_milliwatts(gpu.profile, recent_percent(&gpu)))
LIVE_GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_millijoules(&gpu))
GETTER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned int, power_limit_milliwatts(gpu.profile))
TWIN(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPowerManagementLimit);
TWIN(nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit);

ENTRY nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t handle, unsigned int *lowest,
                                                   unsigned int *highest)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, lowest && highest));
    *lowest = least_power_limit_milliwatts(gpu.profile);
    *highest = power_limit_milliwatts(gpu.profile);
    return NVML_SUCCESS;
}
