/*
 * stepper CALL STRIDE [pause]: runs a call in a process that is stopped after STRIDE, 2 STRIDE, ...
 * machine instructions, until the call gets through.
 *
 * There it is killed, and its successor in the slot and everybody else must find a whole node. Or,
 * with `pause`, somebody else comes into the slot of a dead process before the call goes on, which
 * must not do to the newcomer what was meant for the dead.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "invariants.h"

enum { OURS = 1 << 20, ITS = 4096, LONG_NS = 1000000000, DEADLINE_MS = 60000 };

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
    pid_t child = fork_mortal();
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

/* A process that is about to make the call. */
static pid_t start_caller(const struct scene *scene)
{
    int status = 0;
    pid_t child = fork_mortal();
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
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Takes the lowest free slot and some memory, tells so, and stays. */
static pid_t start_newcomer(int *told)
{
    int ends[2];
    CLAIM(pipe(ends) == 0, "pipe");
    pid_t child = fork_mortal();
    if (child == 0) {
        if (sim_reserve(0, ITS) != 0 || write(ends[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    *told = ends[0];
    return child;
}

static bool has_told(int told, int milliseconds)
{
    struct pollfd wanted = {.fd = told, .events = POLLIN};
    return poll(&wanted, 1, milliseconds) == 1;
}

static bool kill_after(const struct scene *scene, long instructions)
{
    int told = -1;
    pid_t caller = start_caller(scene);
    if (scene->haunted)
        leave_a_corpse();
    bool unfinished = run_for(caller, instructions);
    end(caller);
    pid_t successor = start_newcomer(&told);
    CLAIM(has_told(told, DEADLINE_MS), "the successor hangs after %ld", instructions);
    end(successor);
    close(told);
    check_node(node);
    CLAIM(node->devices[0].used_bytes == OURS, "after %ld instructions", instructions);
    CLAIM(sim_inject(node, 0, SIM_CALL_LAUNCH, 1, 1, 0) == 0, "a fault was left behind");
    CLAIM(sim_clear(node, 0) == 0, "clear");
    return unfinished;
}

static bool pause_after(const struct scene *scene, long instructions)
{
    int told = -1;
    pid_t caller = start_caller(scene);
    leave_a_corpse();
    bool unfinished = run_for(caller, instructions);
    pid_t newcomer = start_newcomer(&told);
    /* If the caller was stopped inside a lock, the newcomer can only go on after it. */
    bool blocked = !has_told(told, 20);
    if (unfinished) {
        CLAIM(ptrace(PTRACE_CONT, caller, NULL, NULL) == 0, "continue");
        waitpid(caller, NULL, 0);
    }
    CLAIM(!blocked || has_told(told, DEADLINE_MS), "the newcomer hangs after %ld", instructions);
    end(caller);
    check_node(node);
    CLAIM(node->devices[0].used_bytes == OURS + ITS, "after %ld instructions", instructions);
    end(newcomer);
    close(told);
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
    bool (*stop_after)(const struct scene *, long) = count > 3 ? pause_after : kill_after;
    do {
        if (scene->contended)
            sim_submit(0, 0, LONG_NS);
        instructions += stride;
    } while (stop_after(scene, instructions));
    printf("%ld %llu\n", instructions,
           (unsigned long long)(node->lock.rescues + node->devices[0].lock.rescues));
    return 0;
}
