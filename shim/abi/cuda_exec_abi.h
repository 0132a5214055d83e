/*
 * The half of the driver's binary interface that is about running things, by topic.
 */
#pragma once

#include "cuda_abi.h"
#include "cuda_launch.h"
#include "cuda_module.h"
#include "cuda_stream.h"
#include "cuda_graph.h"
#include "cuda_capture.h"
#include "cuda_lookup.h"
#include "cuda_profiler.h"
