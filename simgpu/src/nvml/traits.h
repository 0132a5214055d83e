/*
 * What follows from a GPU's profile: features that go with its brand, architecture and memory.
 */
#pragma once

#include "session.h"

static inline bool is_consumer(const struct sim_profile *profile)
{
    return profile->brand == NVML_BRAND_GEFORCE;
}

/* Boards with a display output and fans of their own; the others are cooled by their server. */
static inline bool is_workstation(const struct sim_profile *profile)
{
    return is_consumer(profile) || profile->brand == NVML_BRAND_NVIDIA_RTX;
}

/* The large chips (V100, A100, H100, B200) have stacked memory and never slow it down. */
static inline bool has_stacked_memory(const struct sim_profile *profile)
{
    return profile->memory_bus_bits >= 1024;
}

static inline bool supports_ecc(const struct sim_profile *profile)
{
    return !is_consumer(profile);
}

static inline bool ecc_enabled(const struct sim_profile *profile)
{
    return supports_ecc(profile) && !is_workstation(profile);
}

static inline bool supports_mig(const struct sim_profile *profile)
{
    return has_stacked_memory(profile) && profile->architecture >= NVML_DEVICE_ARCH_AMPERE;
}

static inline unsigned cores_per_sm(const struct sim_profile *profile)
{
    bool is_full =
        profile->compute_major == 7 || (profile->compute_major == 8 && profile->compute_minor == 0);
    return is_full ? 64 : 128;
}

static inline unsigned fan_count(const struct sim_profile *profile)
{
    return is_workstation(profile) ? 2 : 0;
}
