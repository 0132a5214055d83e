/*
 * What the programs that try streams, events, modules and graphs have in common.
 *
 * They are linked with the driver's own sources and a clock that stands still until they move it,
 * so what they say about time is exact on any machine.
 */
#pragma once

#include "check.h"
#include "cuda_exec_abi.h"

/* Lets time pass on the simulated node. */
void pass_us(uint64_t microseconds);

/* A call that waits for the GPU: time passes while it does. */
#define FLOW(call)                                                                                 \
    do {                                                                                           \
        let_time_flow(true);                                                                       \
        OK(call);                                                                                  \
        let_time_flow(false);                                                                      \
    } while (0)
void let_time_flow(bool flows);

/* Waits for another thread to make the claim true, as long as a busy machine may take. */
#define AWAIT(claim)                                                                               \
    do {                                                                                           \
        for (int tries = 0; !(claim); tries++) {                                                   \
            CHECK(tries < 60000);                                                                  \
            rest();                                                                                \
        }                                                                                          \
    } while (0)
void rest(void);

/* The current context of device 0, new, with the test kernels loaded for spin(). */
CUcontext new_context(void);

/* The test kernels, in a module of the current context. */
CUmodule test_module(void);
CUfunction test_kernel(const char *name);

/* Keeps the stream busy for so long. */
void spin(CUstream stream, uint64_t microseconds);

CUstream new_stream(unsigned flags);
CUevent new_event(void);
bool is_done(CUstream stream);
bool has_happened(CUevent event);
float elapsed_ms(CUevent start, CUevent end);

/* Runs a function in a thread of its own, with this thread's context, to its end. */
void in_thread(void (*run)(void *), void *argument);
