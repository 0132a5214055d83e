/*
 * How long a launch takes on the simulated device; launch.h has the rule.
 */
#include <stdlib.h>
#include <string.h>

#include "launch.h"

#define LAUNCH_NS 3000
#define STEP_NS 2000
#define STEP_THREADS 256

static const char spin[] = "aliquot_spin";
static const char spin_us[] = "aliquot_spin_us_";

void timing_of(const char *name, struct function *function)
{
    function->timing = TIMING_MODEL;
    if (strcmp(name, spin) == 0) {
        function->timing = TIMING_PARAMETER;
    } else if (strncmp(name, spin_us, sizeof spin_us - 1) == 0) {
        char *end = NULL;
        const unsigned long long us = strtoull(name + sizeof spin_us - 1, &end, 10);
        if (end != name + sizeof spin_us - 1 && *end == '\0') {
            function->timing = TIMING_FIXED;
            function->fixed_ns = us * 1000;
        }
    }
}

/* The first parameter, given one by one or in a buffer. */
static uint64_t first_parameter(void *const *pointers, void *const *extra)
{
    const void *place = NULL;
    if (pointers != NULL) {
        place = pointers[0];
    } else if (extra != NULL) {
        for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2)
            if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                place = extra[i + 1];
    }
    uint64_t value = 0;
    if (place != NULL)
        memcpy(&value, place, sizeof value);
    return value;
}

uint64_t launch_duration_ns(const struct function *function, const struct shape *shape,
                            void *const *pointers, void *const *extra)
{
    if (function->timing == TIMING_PARAMETER)
        return first_parameter(pointers, extra);
    if (function->timing == TIMING_FIXED)
        return function->fixed_ns;
    const uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    const unsigned threads = shape->block[0] * shape->block[1] * shape->block[2];
    const unsigned resident = occupancy_blocks(function, threads, shape->shared_bytes);
    const uint64_t at_once = (uint64_t)function->context->sm_count * (resident != 0 ? resident : 1);
    const uint64_t waves = (blocks + at_once - 1) / at_once;
    const uint64_t steps = (threads + STEP_THREADS - 1) / STEP_THREADS;
    return LAUNCH_NS + waves * steps * STEP_NS;
}
