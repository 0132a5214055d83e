/* A board's power limits and what it has consumed. */
#pragma once

#include "session.h"

/* Since the node was made; never less than before. */
uint64_t energy_millijoules(const struct gpu *gpu);

unsigned power_limit_milliwatts(const struct sim_profile *profile);
unsigned least_power_limit_milliwatts(const struct sim_profile *profile);
