/*
 * Physical memory by handle: cuMemCreate, and everything that keeps such memory alive.
 *
 * Memory ends when its last handle has been released and nothing holds it any more: no mapping of
 * addresses, no part of a sparse array, no multicast binding. The driver may hand out the same
 * number again for a handle whose memory is still mapped, so memory is a record with a number of
 * our own, and handles and holds are its holders.
 *
 * Imports are not charged: the exporting process is, for as long as it holds the memory.
 */
#include "virtual.h"

#include "allocations.h"
#include "charge.h"
#include "device.h"

/* The account's device that memory will be on; DEVICE_NONE for memory of the host. */
static int device_of_location(const CUmemLocation *location)
{
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_of(location->id);
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        return device_of(location->localized.deviceId);
    default:
        return DEVICE_NONE;
    }
}

/* --- records ------------------------------------------------------------------------------- */

enum { NO_RECORD = 0 };

/* The new record has one holder; NO_RECORD when there is no memory to remember it. */
static uint64_t record_make(uint64_t charge, int device)
{
    static uint64_t last;
    const uint64_t number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return allocation_join(KIND_RECORD, number, charge, device, 0) == STANDING_NONE ? NO_RECORD
                                                                                    : number;
}

static void record_join(uint64_t number)
{
    if (number != NO_RECORD)
        allocation_join(KIND_RECORD, number, 0, 0, 0);
}

static void record_leave(uint64_t number)
{
    struct allocation record;
    if (number != NO_RECORD && allocation_leave(KIND_RECORD, number, &record) == STANDING_ALONE)
        charge_return(record.device, record.bytes);
}

static uint64_t record_of_handle(CUmemGenericAllocationHandle handle)
{
    struct allocation entry;
    return allocation_find(KIND_HANDLE, handle, &entry) ? entry.owner : NO_RECORD;
}

/* The record that an address is mapped to; any address inside the mapping will do. */
static uint64_t record_at(CUdeviceptr address)
{
    struct allocation mapping;
    if (allocation_find(KIND_MAPPING, address, &mapping))
        return mapping.owner;
    CUdeviceptr base = 0;
    if (real.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address) ==
            CUDA_SUCCESS &&
        allocation_find(KIND_MAPPING, base, &mapping))
        return mapping.owner;
    return NO_RECORD;
}

/* --- handles ------------------------------------------------------------------------------- */

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    ENTER(cuMemCreate, handle, bytes, properties, flags);
    const int device = properties == NULL ? DEVICE_NONE : device_of_location(&properties->location);
    if (device == DEVICE_NONE)
        return real.cuMemCreate(handle, bytes, properties, flags);
    const uint64_t charge = charge_of(bytes);
    if (!charge_take(device, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuMemCreate, handle, bytes, properties, flags);
    if (result != CUDA_SUCCESS) {
        charge_return(device, charge);
        return result;
    }
    const uint64_t record = record_make(charge, device);
    if (record != NO_RECORD &&
        allocation_join(KIND_HANDLE, *handle, 0, device, record) != STANDING_NONE)
        return CUDA_SUCCESS;
    if (record != NO_RECORD)
        record_leave(record);
    else
        charge_return(device, charge);
    (void)REAL(cuMemRelease, *handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER(cuMemRelease, handle);
    /* Before the driver does: then the number may be another thread's. */
    struct allocation entry;
    const enum standing standing = allocation_leave(KIND_HANDLE, handle, &entry);
    const CUresult result = REAL(cuMemRelease, handle);
    if (standing != STANDING_NONE && result != CUDA_SUCCESS)
        allocation_join(KIND_HANDLE, handle, 0, entry.device, entry.owner);
    else if (standing == STANDING_ALONE)
        record_leave(entry.owner);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    ENTER(cuMemRetainAllocationHandle, handle, address);
    const CUresult result = REAL(cuMemRetainAllocationHandle, handle, address);
    const uint64_t record = result == CUDA_SUCCESS ? record_at((uintptr_t)address) : NO_RECORD;
    /* The first handle since the last was released holds the record anew. */
    if (record != NO_RECORD &&
        allocation_join(KIND_HANDLE, *handle, 0, 0, record) == STANDING_ALONE)
        record_join(record);
    return result;
}

/* --- mappings ------------------------------------------------------------------------------ */

/* Remembers a hold with its size, because one call can end several; imports too, for that. */
static void hold(uint64_t key, uint64_t bytes, uint64_t record)
{
    if (allocation_join(KIND_MAPPING, key, bytes, 0, record) == STANDING_ALONE)
        record_join(record);
}

/* Ends a hold and answers its size; 0 when there was none. */
static uint64_t let_go(uint64_t key)
{
    struct allocation mapping;
    const enum standing standing = allocation_leave(KIND_MAPPING, key, &mapping);
    if (standing == STANDING_ALONE)
        record_leave(mapping.owner);
    return standing == STANDING_NONE ? 0 : mapping.bytes;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ENTER(cuMemMap, address, bytes, offset, handle, flags);
    const CUresult result = REAL(cuMemMap, address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        hold(address, bytes, record_of_handle(handle));
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    ENTER(cuMemUnmap, address, bytes);
    const CUresult result = REAL(cuMemUnmap, address, bytes);
    const CUdeviceptr end = address + bytes;
    while (result == CUDA_SUCCESS && address < end) {
        const uint64_t mapped = let_go(address);
        if (mapped == 0)
            break;
        address += mapped;
    }
    return result;
}

/* --- what can be told apart only by several values ------------------------------------------- */

static uint64_t mix(uint64_t key, uint64_t value)
{
    return (key ^ value) * UINT64_C(0xff51afd7ed558ccd) ^ (key >> 29);
}

static uint64_t tile_key(const CUarrayMapInfo *info)
{
    uint64_t key = mix((uintptr_t)info->resource.array, info->subresourceType);
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        return mix(mix(key, info->subresource.miptail.layer), info->subresource.miptail.offset);
    key = mix(mix(key, info->subresource.sparseLevel.level), info->subresource.sparseLevel.layer);
    key =
        mix(mix(key, info->subresource.sparseLevel.offsetX), info->subresource.sparseLevel.offsetY);
    return mix(key, info->subresource.sparseLevel.offsetZ);
}

static void tile_ended(const struct allocation *tile)
{
    record_leave(tile->bytes);
}

void tiles_end(uint64_t array)
{
    allocation_end(array, tile_ended);
}

static void tile_change(const CUarrayMapInfo *info)
{
    const uint64_t key = tile_key(info);
    struct allocation tile;
    if (allocation_leave(KIND_TILE, key, &tile) == STANDING_ALONE)
        tile_ended(&tile);
    const uint64_t record = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP
                                ? record_of_handle(info->memHandle.memHandle)
                                : NO_RECORD;
    if (record != NO_RECORD && allocation_join(KIND_TILE, key, record, 0,
                                               (uintptr_t)info->resource.array) != STANDING_NONE)
        record_join(record);
}

#define MAPS_ARRAY(name)                                                                           \
    EXPORT CUresult name(CUarrayMapInfo *list, unsigned count, CUstream stream)                    \
    {                                                                                              \
        ENTER(name, list, count, stream);                                                          \
        const CUresult result = REAL(name, list, count, stream);                                   \
        for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)                             \
            tile_change(&list[i]);                                                                 \
        return result;                                                                             \
    }
MAPS_ARRAY(cuMemMapArrayAsync)
MAPS_ARRAY(cuMemMapArrayAsync_ptsz)

/* --- multicast ------------------------------------------------------------------------------- */

/* Devices are told apart as the account numbers them; the older calls do not name one. */
static uint64_t binding_key(CUmemGenericAllocationHandle multicast, size_t offset, int device)
{
    return mix(mix(multicast, offset), (unsigned)device);
}

static void bind(CUmemGenericAllocationHandle multicast, size_t offset, size_t bytes,
                 uint64_t record)
{
    struct allocation entry;
    if (record != NO_RECORD && allocation_find(KIND_RECORD, record, &entry))
        hold(binding_key(multicast, offset, entry.device), bytes, record);
}

#define BINDS(name, record, parameters, ...)                                                       \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result == CUDA_SUCCESS)                                                                \
            bind(multicast, offset, bytes, record);                                                \
        return result;                                                                             \
    }
BINDS(cuMulticastBindMem, record_of_handle(handle),
      (CUmemGenericAllocationHandle multicast, size_t offset, CUmemGenericAllocationHandle handle,
       size_t from, size_t bytes, unsigned long long flags),
      multicast, offset, handle, from, bytes, flags)
BINDS(cuMulticastBindMem_v2, record_of_handle(handle),
      (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
       CUmemGenericAllocationHandle handle, size_t from, size_t bytes, unsigned long long flags),
      multicast, device, offset, handle, from, bytes, flags)
BINDS(cuMulticastBindAddr, record_at(address),
      (CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address, size_t bytes,
       unsigned long long flags),
      multicast, offset, address, bytes, flags)
BINDS(cuMulticastBindAddr_v2, record_at(address),
      (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, CUdeviceptr address,
       size_t bytes, unsigned long long flags),
      multicast, device, offset, address, bytes, flags)

EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice ordinal,
                                  size_t offset, size_t bytes)
{
    ENTER(cuMulticastUnbind, multicast, ordinal, offset, bytes);
    const CUresult result = REAL(cuMulticastUnbind, multicast, ordinal, offset, bytes);
    const size_t end = offset + bytes;
    while (result == CUDA_SUCCESS && offset < end) {
        const uint64_t bound = let_go(binding_key(multicast, offset, device_of(ordinal)));
        if (bound == 0)
            break;
        offset += bound;
    }
    return result;
}
