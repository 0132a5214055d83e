/*
 * Taking from the account and giving back, in what the driver's memory comes in.
 */
#pragma once

#include "blocks.h"
#include "ledger.h"

/* More than any device has, and far from where sums would overflow. */
#define CHARGE_IMPOSSIBLE (UINT64_C(1) << 46)

/*
 * What an allocation of this size takes when it shares its block with no other. Sizes next to 2^64
 * become nothing; those the driver itself refuses.
 */
static inline uint64_t charge_of(uint64_t bytes)
{
    return (bytes + BLOCK_BYTES - 1) & ~(uint64_t)(BLOCK_BYTES - 1);
}

/* Set once this process has memory in pools or graphs: the driver may hold more than is in use. */
extern uint8_t charge_has_slack INTERNAL;

/* Books what pools and graphs have grown or shrunk by since somebody last looked. */
void charge_settle_slowly(void);

static inline void charge_settle(void)
{
    if (UNLIKELY(charge_has_slack))
        charge_settle_slowly();
}

/* Lets the driver return what it holds and nobody uses, if the bytes do not fit otherwise. */
void charge_make_room(int device, uint64_t bytes);

/* Takes from the account; false: it does not fit under the cap. */
static inline bool charge_take(int device, uint64_t bytes)
{
    if (UNLIKELY(device < 0))
        return false;
    if (UNLIKELY(charge_has_slack))
        charge_make_room(device, bytes);
    return ledger_reserve((unsigned)device, bytes);
}

static inline void charge_return(int device, uint64_t bytes)
{
    ledger_release((unsigned)device, bytes);
}

/*
 * Corrects what was taken ahead to what the driver really took. False: the rest does not fit; then
 * all that was taken ahead has been returned.
 */
static inline bool charge_correct(int device, uint64_t ahead, uint64_t taken)
{
    if (taken > ahead && !charge_take(device, taken - ahead)) {
        charge_return(device, ahead);
        return false;
    }
    if (taken < ahead)
        charge_return(device, ahead - taken);
    return true;
}
