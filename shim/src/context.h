/*
 * The life of a context in the account.
 */
#pragma once

#include "overhead.h"

/* A context in the making. */
struct making {
    int device;
    uint64_t ahead; /* taken from the account for it */
    struct look before;
};

/* False: there is no room for one. */
bool context_begin(struct making *making, int device);

/* Charges what the context took, under its key; false: it does not fit, nothing is charged. */
bool context_finish(struct making *making, uint64_t key);

/* Returns a context that is gone, with everything in it. */
void context_end(uint64_t key);
