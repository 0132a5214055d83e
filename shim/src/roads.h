/*
 * Which function stands in for a name, whatever road leads to it.
 */
#pragma once

#include <stdbool.h>

/* Our function for this name, of the driver's or of the dynamic linker's; NULL when not replaced.
 */
void *road_replacement(const char *name);

/* Whether this is a function that one of ours stands in for. */
bool road_is_original(const void *address);
