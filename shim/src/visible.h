/*
 * Which devices the driver is to show.
 */
#pragma once

/* What has to be put back after the driver has looked: one entry, or the whole environment. */
struct visible {
    char *entry;
    char **environment;
    char **longer; /* what stands in its place */
};

/*
 * Narrows CUDA_VISIBLE_DEVICES to the account's devices for as long as the driver initialises. What
 * the program has in that variable is understood as on a machine that has no other devices.
 */
void visible_narrow(struct visible *before);
void visible_restore(const struct visible *before);
