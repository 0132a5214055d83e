/* A board's memory errors. */
#pragma once

#include "session.h"

uint64_t uncorrected_errors(const struct gpu *gpu);
