/* Files that others can truncate, mapped all the same. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Guards a mapping: an access past the end of its file, which would kill the program by SIGBUS,
 * replaces the whole mapping by zeroes and sets *lost instead. False: no place for another one.
 */
bool sigbus_guard(void *start, size_t bytes, volatile bool *lost);
void sigbus_unguard(void *start);

/* Puts the guard back if the program has installed a handler of its own since. */
void sigbus_rearm(void);
