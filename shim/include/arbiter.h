/* The arbiter, for C: the shared declarations and what they build on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "limits_file.h"
#include "usage_file.h"

#include "arbiter_layout.h"
