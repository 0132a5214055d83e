/*
 * The thread that keeps the meters of this process: fills them, reads measurements, tells others.
 *
 * It exists only in processes that launch, sleeps while they do not, and is the only writer of what
 * the meters call the ticker's. Late wake-ups cost nothing: everything goes by the time that has
 * passed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct meter;

/* Whether launches are metered; starts the thread at the first launch, also in a forked child. */
bool ticker_started(void);

/* Something was launched: look soon, should the thread sleep until then. */
void ticker_notice(void);

/* --- tick.c -------------------------------------------------------------------------------- */

/*
 * One look at all meters; answers for how long there is nothing to do, or 0 when nothing will
 * happen before the next launch.
 */
uint64_t tick_meters(uint64_t now_ns);

/*
 * Fills one meter now, by a thread that waits for it; answers after how long, below a second, it
 * is worth looking again.
 */
uint64_t tick_fill(struct meter *meter);

/* Whether something was launched since. */
bool tick_missed(void);

/* Opens the meters of the container's devices. */
void tick_begin(uint64_t now_ns);

#pragma GCC visibility pop
