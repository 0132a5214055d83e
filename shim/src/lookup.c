/*
 * cuGetProcAddress: the driver's own way of handing out its functions.
 *
 * The driver knows which version of a call belongs to a request; so it is asked, and what it
 * answers is looked up among the originals. Should a driver hand out addresses other than those it
 * exports, the request itself says which replacement is meant.
 */
#include "hook.h"

/* The newest CUDA whose header the table has been compared with. */
enum { TABLE_VERSION = 13040 };

/* Puts the replacement where the driver has put its function; false: there is none that fits. */
static bool replace(const char *symbol, void **function, int version, cuuint64_t flags)
{
    const int per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct row *row = row_of(*function, symbol);
    if (row == NULL) {
        row = row_requested(symbol, version, per_thread);
        if (row == NULL || row_replaces(*function))
            return true;
        /*
         * A version newer than this library: its arguments are unknown. One that takes memory past
         * the account is not handed out; the others cannot break the cap and are.
         */
        if (version > TABLE_VERSION)
            return row->treatment != TREATMENT_RESERVES;
    }
    *function = row->replacement;
    return true;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    if (!driver_load(LIBRARY_DRIVER))
        return CUDA_ERROR_NO_DEVICE;
    const CUresult result = real.cuGetProcAddress(symbol, function, version, flags);
    if (result != CUDA_SUCCESS || function == NULL || *function == NULL ||
        replace(symbol, function, version, flags))
        return result;
    *function = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (!driver_load(LIBRARY_DRIVER))
        return CUDA_ERROR_NO_DEVICE;
    const CUresult result = real.cuGetProcAddress_v2(symbol, function, version, flags, status);
    if (result != CUDA_SUCCESS || function == NULL || *function == NULL ||
        replace(symbol, function, version, flags))
        return result;
    *function = NULL;
    if (status != NULL)
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_ERROR_NOT_FOUND;
}
