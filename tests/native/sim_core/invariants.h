/* What must hold for a node whenever nobody is inside a call, whatever was killed before. */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core.h"
#include "python_api.h"

#define CLAIM(claim, ...)                                                                          \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "not true: %s: ", #claim);                                             \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

/* fork(), but the child does not outlive a parent that gives up. */
static inline pid_t fork_mortal(void)
{
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(1);
    return child;
}

static inline void check_device(const struct sim_state *state, unsigned index)
{
    const struct sim_device *device = &state->devices[index];
    uint64_t used = 0;
    uint64_t active = 0;
    bool anybody = false;

    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        const struct sim_usage *usage = &state->processes[slot].usages[index];
        bool runnable = device->runnable[slot / 64] >> slot % 64 & 1;
        used += usage->used_bytes;
        active += usage->active_ns;
        anybody = anybody || runnable;
        CLAIM(usage->active_ns <= usage->horizon_ns, "slot %u", slot);
        CLAIM(runnable == (usage->active_ns < usage->horizon_ns), "slot %u", slot);
        CLAIM(state->processes[slot].pid != 0 || usage->used_bytes == 0, "slot %u", slot);
        CLAIM(state->processes[slot].pid != 0 || usage->horizon_ns == 0, "slot %u", slot);
    }
    CLAIM(device->used_bytes == used, "%llu and %llu", (unsigned long long)device->used_bytes,
          (unsigned long long)used);
    CLAIM(device->used_bytes <= device->profile.memory_bytes, "device %u", index);
    CLAIM(device->time_ns - state->made_wall_ns ==
              device->idle_ns + device->energy_busy_ns + active,
          "device %u", index);
    CLAIM(!anybody || device->runnable[device->turn / 64] >> device->turn % 64 & 1, "turn %llu",
          (unsigned long long)device->turn);
    CLAIM(device->lock.owner == 0, "device %u", index);
    CLAIM(device->lock.undo_count == 0, "device %u", index);
}

/* For who knows that no living process is inside a call. */
static inline void check_node(struct sim_state *state)
{
    struct sim_process_reading reading;

    sim_settle(state);
    sim_read_process(state, 0, &reading); /* so that a lock left by the dead is taken over */
    CLAIM(state->lock.owner == 0, "slots");
    CLAIM(state->lock.undo_count == 0, "slots");
    for (unsigned index = 0; index < state->device_count; index++)
        check_device(state, index);
}
