/*
 * Memory operations in streams: writing a value, waiting for one.
 */
#pragma once

#include "order.h"

/* Whether the operations are possible: known, aligned, on memory that is there. Takes no lock. */
CUresult memop_check(const CUstreamBatchMemOpParams *operations, unsigned count);

/* The operation as a task; its arguments are the operation itself. False: there is nothing to do.
 */
bool memop_task(const CUstreamBatchMemOpParams *operation, struct task *task);
