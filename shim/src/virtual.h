/*
 * Physical memory that arrays hold.
 */
#pragma once

#include <stdint.h>

/* Lets go of what was mapped into an array that is gone. */
void tiles_end(uint64_t array);
