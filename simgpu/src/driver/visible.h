/* Which of the node's devices a program sees, and in which order. */
#pragma once

#include "core.h"

/*
 * Fills `indices` as CUDA_DEVICE_ORDER (FASTEST_FIRST unless it says PCI_BUS_ID) and
 * CUDA_VISIBLE_DEVICES (NULL: all) ask, and answers how many there are.
 */
unsigned visible_devices(const struct sim_state *node, const char *order, const char *visible,
                         unsigned indices[SIM_DEVICES]);
