/*
 * The pids under which the caller sees the node's processes.
 *
 * A process slot knows the pid inside the process's own pid namespace. Who looks from that
 * namespace sees that pid. Who looks from one above it (the host, a pod with hostPID) finds the
 * process in its own /proc, where every pid is shown in all namespaces below. Who looks from
 * anywhere else (another container) cannot name the process at all.
 */
#pragma once

#include "core.h"

/* Fills in the pid of each living process of the node; 0: free slot, or not visible from here. */
void find_host_pids(const struct sim_state *node, unsigned pids[SIM_PROCESSES]);
