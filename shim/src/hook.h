/*
 * What every replacement begins with: whether the call is the program's own, and whether the
 * account stands.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "table.h"

#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((noinline, cold))
#define LIKELY(claim) __builtin_expect(!!(claim), 1)
#define UNLIKELY(claim) __builtin_expect(!!(claim), 0)

/* What a thread is doing, and the context it was last seen in (see device.h). */
struct thread {
    uint32_t inside; /* in the driver on behalf of a replacement: calls are the driver's own */
    uint32_t contexts_seen;
    CUcontext context;
    uint64_t owner; /* what memory that is allocated in the context ends with ... */
    uint64_t note;  /* ... and how a block of it is noted (see blocks.h) */
    int device;
};

/* Reached without a call into the dynamic linker, which may allocate. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct thread thread INTERNAL;

enum gate {
    GATE_SHUT, /* no limits, or no driver: the call fails */
    GATE_PASS, /* nothing to account for: the call goes to the driver */
    GATE_OPEN,
};

/* Set for good once the driver is initialised and its devices are known. */
extern uint8_t gate_is_open INTERNAL;

/* The long way: finds the driver, opens the account, asks for the devices. */
enum gate gate_try(void);

static inline enum gate gate(void)
{
    if (LIKELY(gate_is_open))
        return UNLIKELY(thread.inside != 0) ? GATE_PASS : GATE_OPEN;
    return gate_try();
}

/*
 * First line of a replacement: returns from it unless there is something to account for.
 * The answer of a shut gate is that there is no device, as on a machine without one.
 */
#define ENTER(name, ...)                                                                           \
    do {                                                                                           \
        const enum gate state = gate();                                                            \
        if (UNLIKELY(state != GATE_OPEN))                                                          \
            return state == GATE_PASS ? real.name(__VA_ARGS__) : CUDA_ERROR_NO_DEVICE;             \
    } while (0)

/* The driver's function, called so that what the driver calls in turn is not accounted again. */
#define REAL(name, ...)                                                                            \
    __extension__({                                                                                \
        thread.inside = 1;                                                                         \
        const __typeof__(real.name(__VA_ARGS__)) result = real.name(__VA_ARGS__);                  \
        thread.inside = 0;                                                                         \
        result;                                                                                    \
    })
