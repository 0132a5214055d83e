/*
 * What the programs that try captures have in common.
 */
#pragma once

#include "bench.h"

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED
#define ACTIVE CU_STREAM_CAPTURE_STATUS_ACTIVE
#define BROKEN CU_STREAM_CAPTURE_STATUS_INVALIDATED

CUstreamCaptureStatus status_of(CUstream stream);
size_t node_count(CUgraph graph);
CUgraph end_capture(CUstream stream);

/* Ends a capture that is expected to have been invalidated. */
void end_invalid(CUstream stream);
