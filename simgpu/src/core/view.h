/*
 * A mapping of a node by this process, and under which number the node knows the process.
 *
 * Numbers below SIM_PROCESSES are processes of the node, the others observers, which take locks
 * but own nothing. Whoever has a number holds an OFD lock on a byte of the file that stands for it;
 * the kernel drops it when the process is gone, in whatever pid namespace it was.
 *
 * Two traps shape this. A mapping keeps the open file description of its descriptor alive, and
 * children inherit mappings: so the node is mapped through another descriptor than the one that
 * holds the locks. And a forked child inherits the descriptor: it closes it at once, or its parent
 * would look alive for as long as the child runs.
 */
#pragma once

#include "core.h"

/*
 * A ticket is what a lock knows its owner by: number + 1, and the count of owners the number has
 * had, so that neither a waiter nor the next owner of the number mistakes a dead owner for a
 * living one. The top bit belongs to the lock.
 */
enum { SIM_TICKET_NUMBER = 0xffff, SIM_TICKET_SHIFT = 16, SIM_TICKET_GENERATION = 0x7fff };

struct sim_view {
    struct sim_state *state;
    struct sim_view *next;
    int keeper;              /* the descriptor that holds the locks of our numbers; -1: none yet */
    int probe;               /* the one that asks about others' locks; holds none itself */
    uint64_t file_device;    /* which file both must be, because programs ... */
    uint64_t file_inode;     /* ... close descriptors that are not theirs */
    uint32_t process;        /* our ticket as a process of the node; 0: none */
    struct sim_process *own; /* ... and what it stands for; NULL: nothing */
    uint32_t observer;       /* our ticket as an observer; 0: none */
    char path[4096];
};

static inline unsigned sim_ticket_number(uint32_t ticket)
{
    return (ticket & SIM_TICKET_NUMBER) - 1;
}

/* Maps the node at `path`; NULL and a sentence in `why` if there is none that we can use. */
struct sim_view *sim_view_open(const char *path, char *why, size_t why_bytes);
void sim_view_close(struct sim_view *view);

/* The view that `state` was mapped by; NULL: none. */
struct sim_view *sim_view_of(const struct sim_state *state);

/* The view of the node that ALIQUOT_SIM_STATE names; NULL until it is opened. */
extern struct sim_view *sim_self;

/* Opens it; NULL and a sentence, if anybody wants it, when there is none. */
struct sim_view *sim_view_open_self(const char **why);

/* The same view, opened on first use. */
static inline struct sim_view *sim_view_self(void)
{
    struct sim_view *view = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    return __builtin_expect(view != NULL, 1) ? view : sim_view_open_self(NULL);
}
