/* mayhem KILLS SEED: processes that do everything at random, killed at random, and a node that must
 * stay whole. A survivor does the same all the time; what it holds must be untouched. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "invariants.h"
#include "storm.h"

enum { CHILDREN = 3 };

static pid_t start_storm(struct sim_state *node, uint64_t seed)
{
    pid_t child = fork_mortal();
    if (child != 0)
        return child;
    for (struct storm storm = {.seed = seed};;)
        storm_step(&storm, node);
}

int main(int count, char **arguments)
{
    const char *why = "";
    struct sim_state *node = (struct sim_state *)(uintptr_t)sim_node(&why);
    struct storm storm = {.seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1};
    pid_t children[CHILDREN];
    long kills = count > 1 ? atol(arguments[1]) : 100;
    uint64_t rescues = 0;

    CLAIM(node, "%s", why);
    for (int child = 0; child < CHILDREN; child++)
        children[child] = start_storm(node, storm_random(&storm, UINT64_MAX));
    for (long kill_number = 0; kill_number < kills; kill_number++) {
        for (uint64_t steps = storm_random(&storm, 10); steps > 0; steps--)
            storm_step(&storm, node);
        pid_t *victim = &children[storm_random(&storm, CHILDREN)];
        kill(*victim, SIGKILL);
        waitpid(*victim, NULL, 0);
        *victim = start_storm(node, storm_random(&storm, UINT64_MAX));
    }
    for (int child = 0; child < CHILDREN; child++) {
        kill(children[child], SIGKILL);
        waitpid(children[child], NULL, 0);
    }
    check_node(node);
    CLAIM(node->devices[0].used_bytes == storm.held_bytes, "the survivor's memory");
    rescues = node->lock.rescues;
    for (unsigned device = 0; device < node->device_count; device++)
        rescues += node->devices[device].lock.rescues;
    printf("%llu\n", (unsigned long long)rescues);
    return 0;
}
