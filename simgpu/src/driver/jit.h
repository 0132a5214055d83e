/*
 * The options of the compiler that turns PTX into code, as far as there is something to say.
 */
#pragma once

#include "driver.h"

/* Whether the options are ones that exist. */
CUresult jit_check(unsigned count, const CUjit_option *options, void *const *values);

/* Fills the logs that the program asked for, and says how long they are. */
void jit_report(unsigned count, const CUjit_option *options, void **values, CUresult result);
