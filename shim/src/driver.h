/*
 * The libraries whose calls are replaced: finding them, and filling `real` from them.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "table.h"

/*
 * Whether the library is loaded and `real` holds its functions. Looks for a library that the
 * program has loaded, never loads one.
 */
bool driver_bound(enum library library);

/* As driver_bound, but loads the library when the program has not. */
bool driver_load(enum library library);

/* The handle by which dlsym knows a bound library. */
void *driver_handle(enum library library);

/* Which library a file name means (libcuda.so, /usr/lib/libcuda.so.1, ...); LIBRARIES: neither. */
enum library driver_named(const char *file);

/* Which library an address lies in, whatever its file is called; LIBRARIES: neither. */
enum library driver_around(const void *address);
