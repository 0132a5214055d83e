/* A process of the node that does what its standard input says, one answer for each line. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "invariants.h"

typedef uint64_t number;

static number submit_many(unsigned device, number count, number duration_ns)
{
    number end = sim_active(device);
    for (number item = 0; item < count; item++)
        end = sim_submit(device, end, duration_ns);
    return end;
}

/* The child keeps the pipes open, so its death is for the test to bring about. */
static number fork_child(bool uses_node)
{
    pid_t child = fork();
    if (child != 0)
        return (number)child;
    if (uses_node && sim_reserve(0, 4096) != 0)
        _exit(1);
    for (;;)
        pause();
}

static number close_descriptors(void)
{
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        close(descriptor);
    return 0;
}

static number slot_of(const struct sim_state *node, pid_t pid)
{
    number slot = 0;
    while (slot < SIM_PROCESSES && node->processes[slot].pid != pid)
        slot++;
    return slot;
}

/* time idle used gone, then active and horizon and memory of every process by pid */
static void report(struct sim_state *node, unsigned device)
{
    sim_settle(node);
    const struct sim_device *shared = &node->devices[device];
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, shared->time_ns - node->made_wall_ns,
           shared->idle_ns, shared->used_bytes, shared->energy_busy_ns);
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        const struct sim_usage *usage = &node->processes[slot].usages[device];
        if (node->processes[slot].pid)
            printf(" %d:%" PRIu64 ":%" PRIu64 ":%" PRIu64, node->processes[slot].pid,
                   usage->active_ns, usage->horizon_ns, usage->used_bytes);
    }
    putchar('\n');
}

int main(void)
{
    char line[256];
    const char *why = NULL;
    struct sim_state *node = (struct sim_state *)(uintptr_t)sim_node(&why);

    setvbuf(stdout, NULL, _IOLBF, 0);
    puts(node ? "ready" : why);
    while (node && fgets(line, sizeof(line), stdin)) {
        char verb[32] = "";
        unsigned device = 0;
        number a = 0, b = 0;
        int64_t answer = 0;
        if (sscanf(line, "%31s %u %" SCNu64 " %" SCNu64, verb, &device, &a, &b) < 1)
            continue;
        if (!strcmp(verb, "submit"))
            answer = (int64_t)sim_submit(device, a, b);
        else if (!strcmp(verb, "many"))
            answer = (int64_t)submit_many(device, a, b);
        else if (!strcmp(verb, "active"))
            answer = (int64_t)sim_active(device);
        else if (!strcmp(verb, "reached"))
            answer = sim_reached(device, a);
        else if (!strcmp(verb, "wait"))
            answer = sim_wait(device, a);
        else if (!strcmp(verb, "wall"))
            answer = (int64_t)(sim_wall(device, a) - node->made_wall_ns);
        else if (!strcmp(verb, "cancel"))
            sim_cancel(device);
        else if (!strcmp(verb, "reserve"))
            answer = sim_reserve(device, a);
        else if (!strcmp(verb, "release"))
            sim_release(device, a);
        else if (!strcmp(verb, "free"))
            answer = (int64_t)sim_free_bytes(device);
        else if (!strcmp(verb, "launch"))
            sim_count_launch(device);
        else if (!strcmp(verb, "fault"))
            answer = sim_fault(device, (enum sim_call)a);
        else if (!strcmp(verb, "utilization"))
            answer = sim_utilization(node, device);
        else if (!strcmp(verb, "fork"))
            answer = (int64_t)fork_child(a != 0);
        else if (!strcmp(verb, "close"))
            answer = (int64_t)close_descriptors();
        else if (!strcmp(verb, "slot"))
            answer = (int64_t)slot_of(node, getpid());
        else if (!strcmp(verb, "check"))
            check_node(node);
        else if (!strcmp(verb, "report"))
            report(node, device);
        else
            return 2;
        if (strcmp(verb, "report") != 0)
            printf("%" PRId64 "\n", answer);
    }
    return node ? 0 : 1;
}
