/* Reserved addresses, and the physical memory that is mapped to them. */
#include <stdlib.h>
#include <sys/mman.h>

#include "stream.h"
#include "virtual.h"

void virtual_forget(void)
{
    physicals_forget();
}

/* --- looking -------------------------------------------------------------------------------
 * A reservation's `detail` is its first mapping; mappings are sorted by address. */

static struct mapping *first_of(const struct piece *piece)
{
    return piece->detail;
}

static struct mapping *find(const struct piece *piece, uint64_t address)
{
    for (struct mapping *mapping = first_of(piece); mapping != NULL; mapping = mapping->next) {
        if (address - mapping->start < mapping->bytes)
            return mapping;
    }
    return NULL;
}

struct mapping *mapping_at(uint64_t address)
{
    const struct piece *piece = space_find(address);
    return piece != NULL && piece->use == PIECE_RESERVED ? find(piece, address) : NULL;
}

static bool is_accessible(const struct mapping *mapping)
{
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if (mapping->access[ordinal] != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return true;
    }
    return mapping->host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* Several mappings may follow each other without a gap. */
bool reserved_holds(const struct piece *piece, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    if (end < address)
        return false;
    for (const struct mapping *mapping = find(piece, address);
         mapping != NULL && address >= mapping->start; mapping = mapping->next) {
        if (address - mapping->start >= mapping->bytes || !is_accessible(mapping))
            return false;
        address = mapping->start + mapping->bytes;
        if (address >= end)
            return true;
    }
    return false;
}

bool reserved_narrow(struct piece *copy, uint64_t address)
{
    const struct mapping *mapping = find(copy, address);
    if (mapping == NULL)
        return false;
    const CUmemLocation *location = &mapping->physical->properties.location;
    copy->start = mapping->start;
    copy->bytes = copy->wanted_bytes = mapping->bytes;
    copy->device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? (unsigned)location->id : 0;
    return true;
}

uint64_t reserved_handle_types(const struct piece *piece)
{
    memory_lock();
    const struct mapping *mapping = mapping_at(piece->start);
    const uint64_t types =
        mapping != NULL ? (uint64_t)mapping->physical->properties.requestedHandleTypes : 0;
    memory_unlock();
    return types;
}

/* --- reserving ----------------------------------------------------------------------------- */

/* Addresses whose first is a multiple of the alignment; lock held. */
static struct piece *take_aligned(uint64_t bytes, uint64_t alignment)
{
    if (alignment <= BLOCK_BYTES)
        return space_take(bytes);
    struct piece *larger = space_take(bytes + alignment);
    if (larger == NULL)
        return NULL;
    const uint64_t start = (larger->start + alignment - 1) & ~(alignment - 1);
    space_give(larger);
    return space_take_at(start, bytes);
}

static struct piece *reserve(uint64_t bytes, uint64_t alignment, uint64_t hint)
{
    struct piece *piece = NULL;
    if (hint != 0 && hint % BLOCK_BYTES == 0 && (alignment == 0 || hint % alignment == 0) &&
        space_covers(hint))
        piece = space_take_at(hint, bytes);
    if (piece == NULL)
        piece = take_aligned(bytes, alignment);
    if (piece == NULL)
        return NULL;
    if (!space_mark(piece)) {
        space_give(piece);
        return NULL;
    }
    piece->use = PIECE_RESERVED;
    piece->wanted_bytes = bytes;
    piece->buffer_id = memory_next_id();
    return piece;
}

ENTRY cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                          unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(address != NULL && flags == 0 && bytes > 0 && bytes % 4096 == 0 && hint % 4096 == 0);
    REQUIRE((alignment & (alignment - 1)) == 0);
    if (bytes > UINT64_C(1) << 47 || alignment > UINT64_C(1) << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory_lock();
    const struct piece *piece = reserve(space_round(bytes), alignment, hint);
    if (piece != NULL)
        *address = piece->start;
    memory_unlock();
    return piece != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The reservation that a range lies in; lock held. */
static struct piece *reservation(CUdeviceptr address, size_t bytes)
{
    struct piece *piece = space_find(address);
    if (piece == NULL || piece->use != PIECE_RESERVED || bytes == 0)
        return NULL;
    return bytes <= piece->bytes - (address - piece->start) ? piece : NULL;
}

ENTRY cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    TRY(driver_check());
    memory_lock();
    struct piece *piece = reservation(address, bytes);
    const bool may = piece != NULL && piece->start == address &&
                     piece->bytes == space_round(bytes) && first_of(piece) == NULL;
    if (may)
        memory_drop(piece);
    memory_unlock();
    return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void reserved_end(struct piece *piece)
{
    while (first_of(piece) != NULL) {
        struct mapping *mapping = first_of(piece);
        piece->detail = mapping->next;
        space_renew(mapping->start, mapping->bytes);
        physical_let_go(mapping->physical);
        free(mapping);
    }
}

/* --- mapping ------------------------------------------------------------------------------- */

/* Puts a mapping in its place by address; false when something is mapped there. */
static bool insert(struct piece *piece, struct mapping *mapping)
{
    struct mapping **link = (struct mapping **)&piece->detail;
    while (*link != NULL && (*link)->start + (*link)->bytes <= mapping->start)
        link = &(*link)->next;
    if (*link != NULL && (*link)->start < mapping->start + mapping->bytes)
        return false;
    mapping->next = *link;
    *link = mapping;
    return true;
}

static CUresult map(struct piece *piece, struct mapping *mapping)
{
    const struct physical *physical = mapping->physical;
    if (!insert(piece, mapping))
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap((void *)(uintptr_t)mapping->start, mapping->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->file,
                        (off_t)(physical->file_offset + mapping->offset));
    if (memory == MAP_FAILED) {
        for (struct mapping **link = (struct mapping **)&piece->detail; *link != NULL;
             link = &(*link)->next) {
            if (*link == mapping) {
                *link = mapping->next;
                break;
            }
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(memory, mapping->bytes, MADV_DONTFORK);
    physical_keep(mapping->physical);
    return CUDA_SUCCESS;
}

static CUresult map_locked(CUdeviceptr address, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle)
{
    struct piece *piece = reservation(address, bytes);
    struct physical *physical = physical_of(handle);
    REQUIRE(piece != NULL && physical != NULL);
    REQUIRE(offset <= physical->bytes && bytes <= physical->bytes - offset);
    /* Hardware would wait for the devices that are missing; nobody could add them meanwhile. */
    if (physical->multicast != NULL && !multicast_is_complete(physical->multicast))
        return CUDA_ERROR_ILLEGAL_STATE;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->start = address;
    mapping->bytes = bytes;
    mapping->offset = offset;
    mapping->physical = physical;
    const CUresult result = map(piece, mapping);
    if (result != CUDA_SUCCESS)
        free(mapping);
    return result;
}

ENTRY cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(flags == 0 && bytes > 0);
    REQUIRE(address % BLOCK_BYTES == 0 && bytes % BLOCK_BYTES == 0 && offset % BLOCK_BYTES == 0);
    memory_lock();
    const CUresult result = map_locked(address, bytes, offset, handle);
    memory_unlock();
    return result;
}

/* Whether whole mappings, one after the other, fill the range; lock held. */
static bool is_filled(const struct piece *piece, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    for (const struct mapping *mapping = find(piece, address); mapping != NULL;
         mapping = mapping->next) {
        if (mapping->start != address)
            return false;
        address += mapping->bytes;
        if (address >= end)
            return address == end;
    }
    return false;
}

static void unmap(struct piece *piece, uint64_t address, uint64_t bytes)
{
    struct mapping **link = (struct mapping **)&piece->detail;
    while (*link != NULL) {
        struct mapping *mapping = *link;
        if (mapping->start - address >= bytes) {
            link = &mapping->next;
            continue;
        }
        *link = mapping->next;
        physical_let_go(mapping->physical);
        free(mapping);
    }
    space_renew(address, bytes);
}

ENTRY cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    TRY(driver_check());
    struct context *context = context_current();
    /* Queued work may still use the addresses. */
    if (context != NULL && context->stamp == thread.stamp)
        TRY(streams_wait(context));
    memory_lock();
    struct piece *piece = reservation(address, bytes);
    const bool may = piece != NULL && is_filled(piece, address, bytes);
    if (may)
        unmap(piece, address, bytes);
    memory_unlock();
    return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- access -------------------------------------------------------------------------------- */

static bool is_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_access(const CUmemAccessDesc *wanted)
{
    REQUIRE(wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
            wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (is_host(&wanted->location))
        return CUDA_SUCCESS;
    REQUIRE(wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    return wanted->location.id >= 0 && (unsigned)wanted->location.id < driver.device_count
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

static void set_access(struct piece *piece, uint64_t address, uint64_t bytes,
                       const CUmemAccessDesc *wanted)
{
    for (struct mapping *mapping = find(piece, address);
         mapping != NULL && mapping->start < address + bytes; mapping = mapping->next) {
        if (is_host(&wanted->location))
            mapping->host_access = (uint8_t)wanted->flags;
        else
            mapping->access[wanted->location.id] = (uint8_t)wanted->flags;
    }
}

ENTRY cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions,
                     size_t count)
{
    TRY(driver_check());
    REQUIRE(descriptions != NULL && count > 0);
    for (size_t number = 0; number < count; number++)
        TRY(check_access(&descriptions[number]));
    memory_lock();
    struct piece *piece = reservation(address, bytes);
    const bool may = piece != NULL && is_filled(piece, address, bytes);
    for (size_t number = 0; may && number < count; number++)
        set_access(piece, address, bytes, &descriptions[number]);
    memory_unlock();
    return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    TRY(driver_check());
    REQUIRE(flags != NULL && location != NULL);
    TRY(check_access(&(CUmemAccessDesc){.location = *location}));
    memory_lock();
    const struct mapping *mapping = mapping_at(address);
    if (mapping != NULL)
        *flags = is_host(location) ? mapping->host_access : mapping->access[location->id];
    memory_unlock();
    return mapping != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
