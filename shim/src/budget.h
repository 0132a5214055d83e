/*
 * The container's compute budget as one process sees it: the terms that the limits state, and the
 * tokens of GPU time that the container's processes deal out among themselves.
 *
 * Nobody owns the dealing. Whichever process looks at the clock first deals the time since the last
 * deal to all slots alike, none more than it has room for, so the sum never exceeds the share
 * whatever process sleeps, dies or starts. The usage file belongs to the tenant and can be damaged:
 * what a process takes from it is bounded by its own clock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct terms {
    uint32_t rate;   /* compute that the container may use, in hundredths of a percent */
    bool whole;      /* the whole device is guaranteed: nothing to enforce */
    bool borrowed;   /* more than is guaranteed: a lender may want it back */
    bool arbitrated; /* somebody watches over the device, so what follows is known */
    bool contended;  /* other containers use the device */
    uint32_t ratio;  /* GPU time by NVML over GPU time charged, in thousandths */
};

/* What a process tells the others and the agent about one device. */
struct report {
    uint64_t busy_ns;      /* GPU time charged for what has run so far */
    uint64_t throttled_ns; /* time for which launches were held */
    uint64_t launches;
    uint64_t occupied_ns; /* since the last report: time with work on the device, even waiting */
    bool active;          /* work is on the device */
    bool wanting;         /* launches are being held for lack of budget */
};

/* Opens the budget; false: the process has no account at all, and so no GPU. */
bool budget_open(void);

/* The terms that hold now; false: this device is none of the container's. */
bool budget_terms(unsigned device, uint64_t now_ns, struct terms *terms);

/* Takes part in dealing and answers what came to this process, at most `room_ns`. */
int64_t budget_collect(unsigned device, uint64_t now_ns, uint32_t rate, int64_t room_ns);

/* Whether another process of the container has had work on the device lately. */
bool budget_siblings(unsigned device, uint64_t now_ns);

void budget_report(unsigned device, uint64_t now_ns, const struct report *report);

/* In a forked child: the slot is the parent's. */
void budget_forked(void);

#pragma GCC visibility pop
