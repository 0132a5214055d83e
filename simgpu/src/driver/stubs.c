/*
 * The names nobody has defined: each entry of the driver API exists and says that it is missing.
 *
 * The stubs are weak, so the definition of an entry replaces its stub when the library is linked.
 * They carry C names of their own, because the real declarations have parameters.
 */
#include "driver.h"

static CUresult missing(const char *symbol)
{
    driver_log("%s is not simulated", symbol);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define NAME(base, symbol, version, variant)                                                       \
    __attribute__((weak, visibility("default"))) CUresult missing_##symbol(void) __asm__(#symbol); \
    CUresult missing_##symbol(void)                                                                \
    {                                                                                              \
        return missing(#symbol);                                                                   \
    }
#include "names.def"
