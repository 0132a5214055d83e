/* Which process is which, and which are gone: the names that owners of slots go by. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The owner word of the calling process; asked for again after a fork. */
uint64_t liveness_self(void);

/* Whether the process that an owner word names is certainly gone. */
bool liveness_is_dead(uint64_t owner);
