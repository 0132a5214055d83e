/* Making a node: a sparse file that appears whole, for every user of the machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "core.h"
#include "python_api.h"

static void fill(struct sim_state *state, const struct sim_profile *profiles, unsigned count,
                 const struct sim_options *options)
{
    uint64_t now = sim_now();

    memcpy(state->magic, "ALIQSIM", sizeof(state->magic));
    state->layout = SIM_LAYOUT;
    state->device_count = count;
    state->file_bytes = sizeof(*state);
    state->made_wall_ns = now;
    sim_boot_read(state->boot_id);
    memcpy(state->driver_version, options->driver_version, sizeof(state->driver_version));
    state->cuda_version = options->cuda_version;
    state->null_mode = options->null_mode;
    state->hide_idle = options->hide_idle;
    state->nvml_delay_us = options->nvml_delay_us;
    for (unsigned device = 0; device < count; device++) {
        state->devices[device].profile = profiles[device];
        state->devices[device].time_ns = now;
    }
}

int sim_make(const char *path, const struct sim_profile *profiles, unsigned count,
             const struct sim_options *options)
{
    char temporary[PATH_MAX];

    if (count < 1 || count > SIM_DEVICES)
        return -EINVAL;
    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
        return -ENAMETOOLONG;
    int file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0)
        return -errno;
    void *memory = MAP_FAILED;
    /* Containers of any user share the node. */
    if (fchmod(file, 0666) == 0 && ftruncate(file, sizeof(struct sim_state)) == 0)
        memory = mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int result = memory == MAP_FAILED ? -errno : 0;
    close(file);
    if (result == 0) {
        fill(memory, profiles, count, options);
        munmap(memory, sizeof(struct sim_state));
        result = rename(temporary, path) == 0 ? 0 : -errno;
    }
    if (result != 0)
        unlink(temporary);
    return result;
}
