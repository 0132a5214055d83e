/* threads COUNT STEPS: many threads of one process do everything at random, while others fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "invariants.h"
#include "storm.h"

static struct sim_state *node;
static long steps;

static void *run(void *argument)
{
    struct storm storm = {.seed = (uint64_t)(uintptr_t)argument};
    for (long step = 0; step < steps; step++)
        storm_step(&storm, node);
    sim_release(0, storm.held_bytes);
    return NULL;
}

static void fork_a_process(void)
{
    pid_t child = fork_mortal();
    if (child == 0) {
        struct storm storm = {.seed = (uint64_t)getpid()};
        for (int step = 0; step < 50; step++)
            storm_step(&storm, node);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CLAIM(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

int main(int count, char **arguments)
{
    const char *why = "";
    pthread_t threads[64];
    long running = count > 1 ? atol(arguments[1]) : 4;

    steps = count > 2 ? atol(arguments[2]) : 1000;
    node = (struct sim_state *)(uintptr_t)sim_node(&why);
    CLAIM(node, "%s", why);
    for (long thread = 0; thread < running; thread++)
        pthread_create(&threads[thread], NULL, run, (void *)(uintptr_t)(thread + 1));
    for (int child = 0; child < 10; child++)
        fork_a_process();
    for (long thread = 0; thread < running; thread++)
        pthread_join(threads[thread], NULL);
    check_node(node);
    CLAIM(node->devices[0].used_bytes == 0, "memory");
    return 0;
}
