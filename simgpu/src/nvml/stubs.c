/*
 * Entries that nobody defines: they exist, so that look-ups succeed as with a real driver, and
 * answer that they are not supported.
 *
 * This file must not see the declarations of the calls, which differ from how stubs are defined.
 */
#include "nvml_result.h"

#include "stubs.h"

#define NAME(symbol)                                                                               \
    __attribute__((weak, visibility("default"))) nvmlReturn_t symbol(void)                         \
    {                                                                                              \
        return answer_stub(#symbol);                                                               \
    }

#include "names.def"
