/*
 * Knowing that one is a forked child.
 */
#pragma once

#include <stdbool.h>

/* From now on `in_child` is called first of all in every forked child; false: no memory for that.
 */
bool forks_watch(void (*in_child)(void));
