/*
 * The container's memory account, as the hooks see it: caps from the limits file, what the
 * container's processes hold in the usage file. Device numbers here are positions in the limits.
 *
 * Nothing below blocks, allocates, or takes a lock that a killed process could keep.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether limits stand and the account is open; opens both on first use. False means fail closed:
 * every CUDA call that needs a device answers an error, and one line on stderr has said why.
 */
bool ledger_ready(void);

/* How many devices the container has, and which one has this uuid (16 raw bytes); -1: hidden. */
unsigned ledger_devices(void);
int ledger_find(const uint8_t uuid[16]);

/* The uuid (16 raw bytes, valid for the life of the process) of a device below ledger_devices(). */
const uint8_t *ledger_uuid(unsigned device);

/* Takes bytes from what is left under the cap; false: refused, counted and, on request, logged. */
bool ledger_reserve(unsigned device, uint64_t bytes);
void ledger_release(unsigned device, uint64_t bytes);

/* Books bytes whatever the cap says: what the driver has already taken (a context, a module). */
void ledger_force(unsigned device, uint64_t bytes);

/* The cap (UINT64_MAX: none) and what all living processes of the container hold. */
uint64_t ledger_limit(unsigned device);
uint64_t ledger_used(unsigned device);

/* What is left under the cap, and the cap; both in one look, for calls that programs make often. */
uint64_t ledger_left(unsigned device, uint64_t *limit_bytes);

/* What this process alone holds by the account. */
uint64_t ledger_held(unsigned device);

/* Whether the process with this pid (in our pid namespace) belongs to the container's account. */
bool ledger_knows_pid(int32_t pid);
