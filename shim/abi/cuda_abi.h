/*
 * The driver's binary interface, by topic.
 */
#pragma once

#include "cuda_result.h"
#include "cuda_types.h"
#include "cuda_device.h"
#include "cuda_context.h"
#include "cuda_memory.h"
#include "cuda_physical.h"
#include "cuda_array.h"
#include "cuda_copy.h"
#include "cuda_external.h"
#include "cuda_tensor.h"
