/* What tells one board from another of the same model. */
#pragma once

#include "session.h"

enum { SERIAL_BYTES = 16 };

/* The board's serial number; false: its kind has none. */
bool write_serial(const struct sim_profile *profile, char serial[SERIAL_BYTES]);
