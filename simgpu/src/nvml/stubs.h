/* What an entry answers that is not implemented. */
#pragma once

#include "nvml_result.h"

/* With ALIQUOT_SIM_LOG set, the name goes to stderr: programs tend to hide what they cannot get. */
nvmlReturn_t answer_stub(const char *name);
