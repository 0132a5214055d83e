/* Copies and memsets as the calls that ask for them see them. */
#pragma once

#include "stream.h"

/* As copy_describe, for contexts that differ. */
CUresult copy_describe_peer(const CUDA_MEMCPY3D_PEER *copy, struct operation *operation);

/* Holds all copies back while memory is moved under its addresses. */
void copies_pause(void);
void copies_resume(void);
void copies_forget(void);
