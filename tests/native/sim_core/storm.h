/* Everything a process can do on a node, at random and without end. */
#pragma once

#include "core.h"

struct storm {
    uint64_t seed;
    uint64_t held_bytes;
    uint64_t end;
};

static inline uint64_t storm_random(struct storm *storm, uint64_t below)
{
    storm->seed = storm->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (storm->seed >> 33) % below;
}

static inline void storm_step(struct storm *storm, struct sim_state *node)
{
    unsigned device = (unsigned)storm_random(storm, node->device_count);
    uint64_t bytes = storm_random(storm, 1 << 20);

    switch (storm_random(storm, 12)) {
    case 0:
    case 1:
        if (device == 0 && sim_reserve(0, bytes) == 0)
            storm->held_bytes += bytes;
        break;
    case 2:
        if (bytes <= storm->held_bytes) {
            sim_release(0, bytes);
            storm->held_bytes -= bytes;
        }
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        storm->end = sim_submit(device, storm->end, storm_random(storm, 3000000));
        break;
    case 7:
        sim_cancel(device);
        break;
    case 8:
        sim_reached(device, storm->end);
        break;
    case 9:
        sim_wall(device, sim_active(device));
        break;
    case 10:
        if (storm_random(storm, 16) == 0) /* seldom: it is long, and mostly outside of locks */
            sim_settle(node);
        break;
    default:
        sim_count_launch(device);
    }
}
