/*
 * Physical memory: bytes of the host, in files without a name, that can stand at many addresses.
 *
 * Memory that may be given to other processes has a file of its own. All other memory shares one
 * file, because programs make thousands of such pieces and files are few.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "virtual.h"
#include "kernel.h"

enum { MOST_PHYSICALS = 1 << 18, GRANULARITY = BLOCK_BYTES, TRAILER_BYTES = 4096 };

/* Behind the bytes of a file that other processes get: what the importer has to know. */
struct trailer {
    char magic[8];
    uint64_t bytes;
    char uuid[SIM_UUID_BYTES];
    CUmemAllocationProp properties;
};

static const char trailer_magic[8] = "ALQPHYS";

static struct table physicals = TABLE(struct physical, MOST_PHYSICALS);

/* The file that memory which stays in this process shares. */
static struct {
    int file; /* + 1, so that zero means none yet */
    struct row row;
} shared;

static void forget_file(void *object, void *argument)
{
    (void)argument;
    const struct physical *physical = object;
    if (physical->owns_file)
        close(physical->file);
}

void physicals_forget(void)
{
    table_each(&physicals, forget_file, NULL);
    table_forget(&physicals);
    if (shared.file > 0)
        close(shared.file - 1);
    shared.file = 0;
}

struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    return table_holds(&physicals, physical) && physical->handles > 0 ? physical : NULL;
}

CUresult virtual_check_handle(CUmemGenericAllocationHandle handle)
{
    memory_lock();
    const bool known = physical_of(handle) != NULL;
    memory_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool open_shared(void)
{
    const uint64_t most_bytes = UINT64_C(1) << 46;
    if (shared.file > 0)
        return true;
    const int file = kernel_memory_file("simulated-gpu");
    row_init(&shared.row, BLOCK_SHIFT);
    if (file < 0 || ftruncate(file, (off_t)most_bytes) != 0 ||
        row_add(&shared.row, 0, most_bytes, NULL) == NULL) {
        if (file >= 0)
            close(file);
        return false;
    }
    shared.file = file + 1;
    return true;
}

static bool share_file(struct physical *physical)
{
    if (!open_shared())
        return false;
    physical->share = row_take(&shared.row, physical->bytes);
    if (physical->share == NULL)
        return false;
    physical->file = shared.file - 1;
    physical->file_offset = physical->share->start;
    return true;
}

static bool own_file(struct physical *physical)
{
    struct trailer trailer = {.bytes = physical->bytes, .properties = physical->properties};
    memcpy(trailer.magic, trailer_magic, sizeof trailer.magic);
    if (physical->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        memcpy(trailer.uuid, driver.devices[physical->properties.location.id].profile->uuid,
               sizeof trailer.uuid);
    physical->file = kernel_memory_file("simulated-gpu-shared");
    if (physical->file < 0)
        return false;
    physical->owns_file = true;
    return ftruncate(physical->file, (off_t)(physical->bytes + TRAILER_BYTES)) == 0 &&
           pwrite(physical->file, &trailer, sizeof trailer, (off_t)physical->bytes) ==
               (ssize_t)sizeof trailer;
}

static void end(struct physical *physical)
{
    if (physical->multicast != NULL)
        multicast_end(physical->multicast);
    if (physical->is_booked)
        sim_release(driver.devices[physical->properties.location.id].index, physical->bytes);
    if (physical->share != NULL) {
        fallocate(shared.file - 1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)physical->share->start, (off_t)physical->share->bytes);
        row_give(&shared.row, physical->share);
    }
    if (physical->owns_file)
        close(physical->file);
    table_give(&physicals, physical);
}

CUresult physical_create(const CUmemAllocationProp *properties, uint64_t bytes, bool exportable,
                         struct physical **created)
{
    struct physical *physical = table_take(&physicals);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->properties = *properties;
    physical->bytes = bytes;
    physical->references = physical->handles = 1;
    if (!(exportable ? own_file(physical) : share_file(physical))) {
        driver_log("no file for physical memory: %s", strerror(errno));
        end(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *created = physical;
    return CUDA_SUCCESS;
}

void physical_keep(struct physical *physical)
{
    physical->references++;
}

void physical_let_go(struct physical *physical)
{
    if (--physical->references == 0)
        end(physical);
}

/* --- entries ------------------------------------------------------------------------------- */

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    const CUmemLocation *location = &properties->location;
    REQUIRE(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    if ((properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        0)
        return CUDA_ERROR_NOT_SUPPORTED;
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

ENTRY cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                    CUmemAllocationGranularity_flags option)
{
    TRY(driver_check());
    REQUIRE(granularity != NULL && properties != NULL);
    REQUIRE(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
            option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    TRY(check_properties(properties));
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/* Charged to the device for as long as a handle or a mapping is left. */
static CUresult book(struct physical *physical)
{
    if (physical->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_SUCCESS;
    const struct device *device = &driver.devices[physical->properties.location.id];
    const int error = sim_reserve(device->index, physical->bytes);
    physical->is_booked = error == 0;
    if (error == 0)
        return CUDA_SUCCESS;
    return error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static CUresult create(const CUmemAllocationProp *properties, size_t bytes,
                       struct physical **physical)
{
    const bool exportable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    TRY(physical_create(properties, bytes, exportable, physical));
    const CUresult result = book(*physical);
    if (result != CUDA_SUCCESS)
        physical_let_go(*physical);
    return result;
}

ENTRY cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                  const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct physical *physical = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL && properties != NULL && flags == 0);
    REQUIRE(bytes > 0 && bytes % GRANULARITY == 0);
    TRY(check_properties(properties));
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        const struct device *device = &driver.devices[properties->location.id];
        const int fault = sim_fault(device->index, SIM_CALL_ALLOC);
        if (fault != 0)
            return (CUresult)fault;
        if (bytes > device->profile->memory_bytes)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory_lock();
    const CUresult result = create(properties, bytes, &physical);
    memory_unlock();
    if (result == CUDA_SUCCESS)
        *handle = physical_handle(physical);
    return result;
}

ENTRY cuMemRelease(CUmemGenericAllocationHandle handle)
{
    TRY(driver_check());
    memory_lock();
    struct physical *physical = physical_of(handle);
    if (physical != NULL) {
        physical->handles--;
        physical_let_go(physical);
    }
    memory_unlock();
    return physical != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    TRY(driver_check());
    REQUIRE(handle != NULL);
    memory_lock();
    const struct mapping *mapping = mapping_at((uint64_t)(uintptr_t)address);
    if (mapping != NULL) {
        physical_keep(mapping->physical);
        mapping->physical->handles++;
        *handle = physical_handle(mapping->physical);
    }
    memory_unlock();
    return mapping != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                             CUmemGenericAllocationHandle handle)
{
    TRY(driver_check());
    REQUIRE(properties != NULL);
    memory_lock();
    const struct physical *physical = physical_of(handle);
    if (physical != NULL)
        *properties = physical->properties;
    memory_unlock();
    return physical != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- between processes --------------------------------------------------------------------- */

ENTRY cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                   CUmemAllocationHandleType type, unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(shareable != NULL && flags == 0);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    memory_lock();
    const struct physical *physical = physical_of(handle);
    const bool may = physical != NULL && physical->owns_file;
    const int file = may ? fcntl(physical->file, F_DUPFD_CLOEXEC, 0) : -1;
    memory_unlock();
    REQUIRE(may);
    if (file < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shareable = file;
    return CUDA_SUCCESS;
}

/* The device with this uuid as this program numbers it; -1: hidden from it. */
static int ordinal_of(const char uuid[SIM_UUID_BYTES])
{
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if (strncmp(driver.devices[ordinal].profile->uuid, uuid, SIM_UUID_BYTES) == 0)
            return (int)ordinal;
    }
    return -1;
}

static CUresult import(int file, struct physical **imported)
{
    struct stat status;
    struct trailer trailer;
    REQUIRE(fstat(file, &status) == 0 && status.st_size > TRAILER_BYTES);
    const off_t bytes = status.st_size - TRAILER_BYTES;
    REQUIRE(pread(file, &trailer, sizeof trailer, bytes) == (ssize_t)sizeof trailer &&
            memcmp(trailer.magic, trailer_magic, sizeof trailer.magic) == 0 &&
            trailer.bytes == (uint64_t)bytes);
    if (trailer.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        trailer.properties.location.id = ordinal_of(trailer.uuid);
        if (trailer.properties.location.id < 0)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    struct physical *physical = table_take(&physicals);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->properties = trailer.properties;
    physical->bytes = trailer.bytes;
    physical->references = physical->handles = 1;
    /* The program may close its descriptor; ours stays. Who made the memory pays for it. */
    physical->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    physical->owns_file = physical->file >= 0;
    if (!physical->owns_file) {
        table_give(&physicals, physical);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *imported = physical;
    return CUDA_SUCCESS;
}

ENTRY cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                     CUmemAllocationHandleType type)
{
    struct physical *physical = NULL;
    TRY(driver_check());
    REQUIRE(handle != NULL);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    memory_lock();
    const CUresult result = import((int)(intptr_t)shareable, &physical);
    memory_unlock();
    if (result == CUDA_SUCCESS)
        *handle = physical_handle(physical);
    return result;
}

/* Kernel interfaces to other devices are not simulated. */
ENTRY cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                    CUmemRangeHandleType type, unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && memory_holds(address, bytes) && flags <= 1);
    REQUIRE(type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    return CUDA_ERROR_NOT_SUPPORTED;
}
