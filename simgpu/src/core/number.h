/* Numbers of a node and who has them: one byte of the file for each, locked by its owner. */
#pragma once

#include "view.h"

/* Held while the numbers of a view change; never while a lock of the node is waited for. */
void sim_views_lock(void);
void sim_views_unlock(void);

/* Takes one of the numbers [first, first + count) that nobody has, looking from `start` on, and
 * answers its ticket; 0: all are taken. The caller has the views locked. */
uint32_t sim_number_take(struct sim_view *view, unsigned first, unsigned count, unsigned start);

/* Gives up all numbers of the view, as a forked child or the end of the view does. */
void sim_number_forget(struct sim_view *view);

/* Closes the descriptor that asks about others. */
void sim_number_forget_probe(struct sim_view *view);

/* Whether somebody has the number. When that cannot be told: yes. */
bool sim_number_taken(struct sim_view *view, unsigned number);

/* Whether the owner of a ticket lives. When that cannot be told: yes. */
bool sim_ticket_alive(struct sim_view *view, uint32_t ticket);
