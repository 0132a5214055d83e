/*
 * NVML's binary interface, by topic.
 */
#pragma once

#include "nvml_result.h"
#include "nvml_types.h"
#include "nvml_health.h"
#include "nvml_calls.h"
