/*
 * Managed memory: addresses that host and devices share.
 *
 * It lives on the host until it is prefetched to a device; only then it is charged there, as far as
 * the device has room. Hardware would also move it when a kernel touches it, which nobody can see
 * here, because kernels are not computed. Advice and locations are kept per allocation, not per
 * page.
 */
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "stream.h"

enum { NOWHERE = -1, ON_HOST = 63 };

struct managed {
    bool read_mostly;
    uint64_t accessed_by; /* bit n: device n; bit ON_HOST: the processor */
    CUmemLocation preferred;
    CUmemLocation prefetched;
    int resident; /* the device that is charged, or NOWHERE */
    uint64_t resident_bytes;
};

static void move_home(struct managed *managed)
{
    if (managed->resident != NOWHERE)
        sim_release(driver.devices[managed->resident].index, managed->resident_bytes);
    managed->resident = NOWHERE;
    managed->resident_bytes = 0;
}

void managed_end(struct piece *piece)
{
    move_home(piece->detail);
    free(piece->detail);
    /* The program writes without asking. */
    space_touch(piece->start, piece->bytes);
}

ENTRY cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    ENTER(context);
    REQUIRE(address != NULL && bytes > 0);
    REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    TRY(capture_refuse_unsafe());
    const int fault = sim_fault(context->device->index, SIM_CALL_ALLOC);
    if (fault != 0)
        return (CUresult)fault;
    struct managed *managed = calloc(1, sizeof *managed);
    struct piece *piece = NULL;
    if (managed == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed->resident = NOWHERE;
    managed->prefetched.id = managed->preferred.id = CU_DEVICE_INVALID;
    const CUresult result = memory_take_addresses(context, bytes, PIECE_MANAGED, managed, &piece);
    if (result != CUDA_SUCCESS) {
        free(managed);
        return result;
    }
    *address = piece->start;
    return CUDA_SUCCESS;
}

/* The managed allocation that a range lies in; lock held. */
static struct piece *find(CUdeviceptr address, size_t bytes)
{
    struct piece *piece = space_find(address);
    if (piece == NULL || piece->use != PIECE_MANAGED || bytes == 0)
        return NULL;
    const uint64_t offset = address - piece->start;
    return offset < piece->wanted_bytes && bytes <= piece->wanted_bytes - offset ? piece : NULL;
}

static CUresult check_range(CUdeviceptr address, size_t bytes)
{
    memory_lock();
    const bool found = find(address, bytes) != NULL;
    memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_location(const CUmemLocation *location)
{
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location->id >= 0 && (unsigned)location->id < driver.device_count
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- prefetching --------------------------------------------------------------------------- */

struct prefetch {
    CUdeviceptr address;
    size_t bytes;
    CUmemLocation location;
};

static void prefetch_run(struct context *context, void *arguments)
{
    (void)context;
    const struct prefetch *prefetch = arguments;
    memory_lock();
    struct piece *piece = find(prefetch->address, prefetch->bytes);
    struct managed *managed = piece != NULL ? piece->detail : NULL;
    if (managed != NULL) {
        const bool to_device = prefetch->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        const uint64_t bytes = space_round(prefetch->bytes);
        managed->prefetched = prefetch->location;
        if (!to_device || managed->resident != prefetch->location.id ||
            managed->resident_bytes < bytes)
            move_home(managed);
        if (to_device && managed->resident == NOWHERE &&
            sim_reserve(driver.devices[prefetch->location.id].index, bytes) == 0) {
            managed->resident = prefetch->location.id;
            managed->resident_bytes = bytes;
        }
    }
    memory_unlock();
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream stream,
                         enum default_stream null_means)
{
    ENTER(context);
    TRY(check_location(&location));
    TRY(check_range(address, bytes));
    struct operation operation = {.run = prefetch_run, .node_type = CU_GRAPH_NODE_TYPE_EMPTY};
    const struct prefetch arguments = {address, bytes, location};
    memcpy(operation.arguments, &arguments, sizeof arguments);
    return stream_submit(stream, null_means, &operation);
}

static CUmemLocation location_of(CUdevice device)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_HOST};
    if (device != CU_DEVICE_CPU) {
        location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        location.id = device;
    }
    return location;
}

ENTRY cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch(address, bytes, location_of(device), stream, DEFAULT_LEGACY);
}

ENTRY cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch(address, bytes, location_of(device), stream, DEFAULT_PER_THREAD);
}

ENTRY cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                            unsigned flags, CUstream stream)
{
    REQUIRE(flags == 0);
    return prefetch(address, bytes, location, stream, DEFAULT_LEGACY);
}

ENTRY cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation location,
                                 unsigned flags, CUstream stream)
{
    REQUIRE(flags == 0);
    return prefetch(address, bytes, location, stream, DEFAULT_PER_THREAD);
}

/* Each location holds from its index up to the next one's. */
static CUresult prefetch_batch(CUdeviceptr *addresses, size_t *sizes, size_t count,
                               CUmemLocation *locations, size_t *indices, size_t location_count,
                               unsigned long long flags, CUstream stream,
                               enum default_stream null_means)
{
    REQUIRE(addresses != NULL && sizes != NULL && locations != NULL && indices != NULL);
    REQUIRE(count > 0 && location_count > 0 && location_count <= count && flags == 0);
    REQUIRE(indices[0] == 0);
    size_t place = 0;
    for (size_t number = 0; number < count; number++) {
        if (place + 1 < location_count && indices[place + 1] == number)
            place++;
        TRY(prefetch(addresses[number], sizes[number], locations[place], stream, null_means));
    }
    return CUDA_SUCCESS;
}

#define BATCH_PARAMETERS                                                                           \
    CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations,                 \
        size_t *indices, size_t location_count, unsigned long long flags, CUstream stream
#define BATCH_ARGUMENTS addresses, sizes, count, locations, indices, location_count, flags, stream

ENTRY cuMemPrefetchBatchAsync(BATCH_PARAMETERS)
{
    return prefetch_batch(BATCH_ARGUMENTS, DEFAULT_LEGACY);
}

ENTRY cuMemPrefetchBatchAsync_ptsz(BATCH_PARAMETERS)
{
    return prefetch_batch(BATCH_ARGUMENTS, DEFAULT_PER_THREAD);
}

/* Discarding makes contents undefined; keeping them is one way of being undefined. */
ENTRY cuMemDiscardAndPrefetchBatchAsync(BATCH_PARAMETERS)
{
    return prefetch_batch(BATCH_ARGUMENTS, DEFAULT_LEGACY);
}

ENTRY cuMemDiscardAndPrefetchBatchAsync_ptsz(BATCH_PARAMETERS)
{
    return prefetch_batch(BATCH_ARGUMENTS, DEFAULT_PER_THREAD);
}

ENTRY cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                             unsigned long long flags, CUstream stream)
{
    ENTER(context);
    (void)stream;
    REQUIRE(addresses != NULL && sizes != NULL && count > 0 && flags == 0);
    for (size_t number = 0; number < count; number++)
        TRY(check_range(addresses[number], sizes[number]));
    return CUDA_SUCCESS;
}
TWIN(cuMemDiscardBatchAsync_ptsz, cuMemDiscardBatchAsync);

/* --- advice -------------------------------------------------------------------------------- */

static void follow(struct managed *managed, CUmem_advise advice, const CUmemLocation *location)
{
    const int place = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : ON_HOST;
    switch ((int)advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        managed->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        managed->preferred = *location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        managed->preferred = (CUmemLocation){.id = CU_DEVICE_INVALID};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        managed->accessed_by |= UINT64_C(1) << place;
        break;
    default:
        managed->accessed_by &= ~(UINT64_C(1) << place);
        break;
    }
}

ENTRY cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    ENTER(context);
    REQUIRE(advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY);
    const bool needs_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                                advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                                advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (needs_location)
        TRY(check_location(&location));
    memory_lock();
    struct piece *piece = find(address, bytes);
    if (piece != NULL)
        follow(piece->detail, advice, &location);
    memory_unlock();
    return piece != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(address, bytes, advice, location_of(device));
}

/* --- asking -------------------------------------------------------------------------------- */

/* As the older attributes say it: a device's number, or one that means the processor, or none. */
static int number_of(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location->id;
    return location->type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

static int answer(const struct managed *managed, CUmem_range_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return managed->read_mostly;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        return number_of(&managed->preferred);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        return number_of(&managed->prefetched);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        return (int)managed->preferred.type;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        return managed->preferred.id;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return (int)managed->prefetched.type;
    default:
        return managed->prefetched.id;
    }
}

/* The devices that were told of, then fillers for the room that is left. */
static void list_accessors(const struct managed *managed, int *devices, size_t room)
{
    size_t count = 0;
    for (int place = 0; place < 64 && count < room; place++) {
        if ((managed->accessed_by >> place & 1) != 0)
            devices[count++] = place == ON_HOST ? CU_DEVICE_CPU : place;
    }
    while (count < room)
        devices[count++] = CU_DEVICE_INVALID;
}

ENTRY cuMemRangeGetAttribute(void *data, size_t data_bytes, CUmem_range_attribute attribute,
                             CUdeviceptr address, size_t bytes)
{
    ENTER(context);
    REQUIRE(data != NULL && data_bytes >= sizeof(int) && data_bytes % sizeof(int) == 0);
    REQUIRE(attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
            attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID);
    REQUIRE(attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY || data_bytes == sizeof(int));
    memory_lock();
    const struct piece *piece = find(address, bytes);
    if (piece != NULL && attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        list_accessors(piece->detail, data, data_bytes / sizeof(int));
    else if (piece != NULL)
        *(int *)data = answer(piece->detail, attribute);
    memory_unlock();
    return piece != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemRangeGetAttributes(void **data, size_t *data_bytes, CUmem_range_attribute *attributes,
                              size_t count, CUdeviceptr address, size_t bytes)
{
    REQUIRE(data != NULL && data_bytes != NULL && attributes != NULL && count > 0);
    for (size_t number = 0; number < count; number++)
        TRY(cuMemRangeGetAttribute(data[number], data_bytes[number], attributes[number], address,
                                   bytes));
    return CUDA_SUCCESS;
}
