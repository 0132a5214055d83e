/* Process slots: becoming a process of the node, and clearing away the dead. */
#pragma once

#include "lock.h"

/* Makes this program a process of the node, with nothing in it; answers its ticket, or 0. */
uint32_t sim_slot_take(struct sim_view *view);

/* We were taken for dead while we had this ticket. */
void sim_slot_lost(struct sim_view *view, uint32_t ticket);

/* Whether the slot still belongs to the process with that ticket. */
static inline bool sim_slot_is(const struct sim_state *state, uint32_t ticket)
{
    const struct sim_process *process = &state->processes[sim_ticket_number(ticket)];
    return __atomic_load_n(&process->generation, __ATOMIC_RELAXED) == ticket;
}

/* Takes everything on the held device from the process in `slot`: it is dead, or not there yet. */
void sim_slot_wipe(struct sim_held *held, unsigned slot);

/* Clears away what the dead have left behind, on all devices. */
void sim_slots_bury_dead(struct sim_view *view);
