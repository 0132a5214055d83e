/* stepper CALL STRIDE: runs a call in a process that is killed after 0, STRIDE, 2 STRIDE, ...
 * machine instructions, until the call gets through, and checks the node after every death. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "invariants.h"

enum { OURS = 1 << 20, ITS = 4096, LONG_NS = 1000000000 };

static struct sim_state *node;

static void submit(void)
{
    sim_submit(0, 0, 3000000);
}

static void reserve(void)
{
    sim_reserve(0, ITS);
    sim_release(0, ITS / 2);
}

static void settle(void)
{
    sim_settle(node);
}

static void cancel(void)
{
    sim_cancel(0);
}

static void inject(void)
{
    sim_inject(node, 0, SIM_CALL_ALLOC, 2, 1, 0);
    sim_fault(0, SIM_CALL_ALLOC);
    sim_post_xid(node, 0, 48, 1);
}

/* What happens before: as whom the call is made, and what else is on the node. */
static const struct scene {
    const char *name;
    void (*call)(void);
    bool attached;  /* the process already is one of the node */
    bool busy;      /* it has work queued */
    bool contended; /* we have work queued as well */
    bool haunted;   /* somebody died and nobody has noticed yet */
} scenes[] = {
    {"attach", reserve, .contended = true},
    {"reserve", reserve, .attached = true},
    {"submit", submit, .attached = true},
    {"submit-busy", submit, .attached = true, .busy = true},
    {"submit-contended", submit, .attached = true, .busy = true, .contended = true},
    {"cancel", cancel, .attached = true, .busy = true, .contended = true},
    {"settle", settle, .attached = true, .busy = true, .contended = true, .haunted = true},
    {"observe", settle, .contended = true, .haunted = true},
    {"inject", inject, .attached = true},
};

static void take_part(const struct scene *scene)
{
    if (scene->attached && sim_reserve(0, ITS) != 0)
        _exit(1);
    if (scene->busy)
        sim_submit(0, 0, LONG_NS);
}

static void leave_a_corpse(void)
{
    pid_t child = fork();
    if (child == 0) {
        sim_reserve(0, ITS);
        sim_submit(0, 0, LONG_NS);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
}

/* Lets the call run for a number of instructions; false: it came to its end before. */
static bool run_for(pid_t child, long instructions)
{
    int status = 0;
    for (long done = 0; done < instructions; done++) {
        CLAIM(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0, "step");
        waitpid(child, &status, 0);
        CLAIM(WIFSTOPPED(status), "status %x", (unsigned)status);
        if (WSTOPSIG(status) == SIGSTOP)
            return false;
    }
    return true;
}

static bool kill_after(const struct scene *scene, long instructions)
{
    int status = 0;
    if (scene->haunted)
        leave_a_corpse();
    pid_t child = fork();
    if (child == 0) {
        take_part(scene);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        scene->call();
        raise(SIGSTOP);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        puts("ptrace is not permitted");
        exit(77);
    }
    CLAIM(WIFSTOPPED(status), "status %x", (unsigned)status);
    bool unfinished = run_for(child, instructions);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check_node(node);
    CLAIM(node->devices[0].used_bytes == OURS, "after %ld instructions", instructions);
    CLAIM(sim_inject(node, 0, SIM_CALL_LAUNCH, 1, 1, 0) == 0, "a fault was left behind");
    CLAIM(sim_clear(node, 0) == 0, "clear");
    return unfinished;
}

int main(int count, char **arguments)
{
    const struct scene *scene = scenes;
    const char *why = "";
    long stride = count > 2 ? atol(arguments[2]) : 1;
    long instructions = 0;

    node = (struct sim_state *)(uintptr_t)sim_node(&why);
    CLAIM(node, "%s", why);
    while (count > 1 && strcmp(scene->name, arguments[1]) != 0) {
        scene++;
        CLAIM(scene < scenes + sizeof(scenes) / sizeof(*scenes), "no call %s", arguments[1]);
    }
    CLAIM(sim_reserve(0, OURS) == 0, "ours");
    do {
        if (scene->contended)
            sim_submit(0, 0, LONG_NS);
        instructions += stride;
    } while (kill_after(scene, instructions));
    printf("%ld %llu\n", instructions,
           (unsigned long long)(node->lock.rescues + node->devices[0].lock.rescues));
    return 0;
}
