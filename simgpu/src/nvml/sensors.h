/*
 * What a board's sensors show at a given load, in percent of the time that it was busy.
 *
 * Nothing is measured here: the values are plausible, lie within what the board allows, and rise
 * with the load, so that monitoring and its alarms can be tried out.
 */
#pragma once

#include "traits.h"

enum {
    SHUTDOWN_CELSIUS = 95,
    SLOWDOWN_CELSIUS = 92,
    MAXIMUM_CELSIUS = 87, /* from here on the board would lower its clocks */
    MEMORY_MAXIMUM_CELSIUS = 95,
    IDLE_CELSIUS = 31,
    LOADED_CELSIUS = 71,
    IDLE_SM_CLOCK_MHZ = 210,
    IDLE_MEMORY_CLOCK_MHZ = 405,
};

static inline unsigned sm_clock_mhz(const struct sim_profile *profile, unsigned percent)
{
    return percent || profile->sm_clock_mhz < IDLE_SM_CLOCK_MHZ ? profile->sm_clock_mhz
                                                                : IDLE_SM_CLOCK_MHZ;
}

static inline unsigned memory_clock_mhz(const struct sim_profile *profile, unsigned percent)
{
    bool is_fixed =
        has_stacked_memory(profile) || profile->memory_clock_mhz < IDLE_MEMORY_CLOCK_MHZ;
    return percent || is_fixed ? profile->memory_clock_mhz : IDLE_MEMORY_CLOCK_MHZ;
}

static inline unsigned idle_milliwatts(const struct sim_profile *profile)
{
    return profile->power_limit_watts * 140; /* 14 % of the limit */
}

static inline unsigned loaded_milliwatts(const struct sim_profile *profile)
{
    return profile->power_limit_watts * 920;
}

static inline unsigned power_milliwatts(const struct sim_profile *profile, unsigned percent)
{
    unsigned idle = idle_milliwatts(profile);
    return idle + (loaded_milliwatts(profile) - idle) / 100 * percent;
}

static inline unsigned temperature_celsius(unsigned percent)
{
    return IDLE_CELSIUS + (LOADED_CELSIUS - IDLE_CELSIUS) * percent / 100;
}

static inline unsigned memory_celsius(unsigned percent)
{
    return temperature_celsius(percent) + 4;
}

static inline unsigned fan_percent(unsigned percent)
{
    return 30 + percent * 2 / 5;
}

/* Boards with stacked memory stay in the fastest state; the others rest when idle. */
static inline nvmlPstates_t performance_state(const struct sim_profile *profile, unsigned percent)
{
    return percent || has_stacked_memory(profile) ? NVML_PSTATE_0 : NVML_PSTATE_8;
}
