/* Contexts as the files that make, end and switch them share them. */
#pragma once

#include "driver.h"

/* A context of the device, opened: charged, with streams and memory of its own. */
CUresult context_create(struct device *device, unsigned flags, unsigned api_version,
                        struct context **context);

/* Ends a context: drops queued work, frees its memory, gives the charge back. */
void context_destroy(struct context *context);

/* A part of the device, beside its primary context and in the same memory. */
CUresult context_create_green(struct device *device, unsigned sm_count, struct context **context);

/* Keeps the device's primary context open until it is released as often. */
CUresult primary_retain(struct device *device, struct context **context);
CUresult primary_release(struct device *device);

/* Whether any context of this process is open on the device. */
bool device_has_context(const struct device *device);

void contexts_forget(void);
void greens_forget(void);

/* --- the thread's stack -------------------------------------------------------------------- */

CUresult stack_push(struct context *context);

/* Takes the top off; NULL when the stack is empty. */
struct context *stack_pop(void);

/* Puts the context in the place of the top; NULL only takes the top off. */
CUresult stack_replace(struct context *context);
