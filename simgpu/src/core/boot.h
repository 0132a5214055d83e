/* Which start of the machine a node belongs to: its clock and its locks mean nothing after it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SIM_BOOT_ID_BYTES = 40 };

/* Fills in this boot's id, or an empty string where the system does not tell. */
void sim_boot_read(char id[SIM_BOOT_ID_BYTES]);

/* Whether something made at `made_wall_ns` in the boot `id` was made in this one. */
bool sim_boot_is_ours(const char id[SIM_BOOT_ID_BYTES], uint64_t made_wall_ns);
