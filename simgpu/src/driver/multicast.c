/*
 * Multicast objects: which devices take part and what memory is bound where.
 *
 * Kernels alone write through them on hardware, and kernels are not computed, so what is copied to
 * a multicast address stays in the object's own bytes and is not spread over the bound memory.
 */
#include <stdlib.h>

#include "virtual.h"

enum { MULTICAST_GRANULARITY = BLOCK_BYTES };

/* Memory of one device that stands for a part of the object. */
struct binding {
    struct binding *next;
    CUdevice device;
    uint64_t offset;
    uint64_t bytes;
    struct physical *physical; /* NULL when it was bound by address */
};

struct multicast {
    CUmulticastObjectProp properties;
    uint64_t devices; /* bit n: device n takes part */
    struct binding *bindings;
};

static unsigned device_count(const struct multicast *multicast)
{
    return (unsigned)__builtin_popcountll(multicast->devices);
}

bool multicast_is_complete(const struct multicast *multicast)
{
    return device_count(multicast) == multicast->properties.numDevices;
}

static void drop_binding(struct binding *binding)
{
    if (binding->physical != NULL)
        physical_let_go(binding->physical);
    free(binding);
}

void multicast_end(struct multicast *multicast)
{
    while (multicast->bindings != NULL) {
        struct binding *binding = multicast->bindings;
        multicast->bindings = binding->next;
        drop_binding(binding);
    }
    free(multicast);
}

static bool is_supported(const struct device *device)
{
    int supported = 0;
    device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, &supported);
    return supported != 0;
}

static bool any_supported(void)
{
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if (is_supported(&driver.devices[ordinal]))
            return true;
    }
    return false;
}

static CUresult check_properties(const CUmulticastObjectProp *properties)
{
    REQUIRE(properties->numDevices > 0 && properties->numDevices <= driver.node->device_count);
    REQUIRE(properties->flags == 0);
    if (!any_supported() ||
        (properties->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

ENTRY cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties,
                                CUmulticastGranularity_flags option)
{
    TRY(driver_check());
    REQUIRE(granularity != NULL && properties != NULL);
    REQUIRE(option == CU_MULTICAST_GRANULARITY_MINIMUM ||
            option == CU_MULTICAST_GRANULARITY_RECOMMENDED);
    TRY(check_properties(properties));
    *granularity = MULTICAST_GRANULARITY;
    return CUDA_SUCCESS;
}

ENTRY cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                        const CUmulticastObjectProp *properties)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && properties != NULL);
    TRY(check_properties(properties));
    REQUIRE(properties->size > 0 && properties->size % MULTICAST_GRANULARITY == 0);
    struct multicast *multicast = calloc(1, sizeof *multicast);
    if (multicast == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    multicast->properties = *properties;
    const CUmemAllocationProp physical_properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)properties->handleTypes,
    };
    struct physical *physical = NULL;
    memory_lock();
    const CUresult result = physical_create(&physical_properties, properties->size,
                                            properties->handleTypes != 0, &physical);
    if (result == CUDA_SUCCESS)
        physical->multicast = multicast;
    memory_unlock();
    if (result == CUDA_SUCCESS)
        *handle = physical_handle(physical);
    else
        free(multicast);
    return result;
}

/* The multicast object of a handle, or NULL; lock held. */
static struct multicast *find(CUmemGenericAllocationHandle handle)
{
    const struct physical *physical = physical_of(handle);
    return physical != NULL ? physical->multicast : NULL;
}

static CUresult add_device(struct multicast *multicast, const struct device *device)
{
    const uint64_t bit = UINT64_C(1) << device->ordinal;
    REQUIRE(multicast != NULL && (multicast->devices & bit) == 0);
    REQUIRE(!multicast_is_complete(multicast));
    if (!is_supported(device))
        return CUDA_ERROR_NOT_SUPPORTED;
    multicast->devices |= bit;
    return CUDA_SUCCESS;
}

ENTRY cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    memory_lock();
    const CUresult result = add_device(find(handle), device);
    memory_unlock();
    return result;
}

/* --- binding ------------------------------------------------------------------------------- */

static bool overlaps(const struct multicast *multicast, const struct binding *fresh)
{
    for (const struct binding *each = multicast->bindings; each != NULL; each = each->next) {
        if (each->device == fresh->device && each->offset < fresh->offset + fresh->bytes &&
            fresh->offset < each->offset + each->bytes)
            return true;
    }
    return false;
}

static CUresult bind(struct multicast *multicast, const struct binding *wanted)
{
    REQUIRE(multicast != NULL && wanted->bytes > 0);
    REQUIRE(wanted->offset % MULTICAST_GRANULARITY == 0 &&
            wanted->bytes % MULTICAST_GRANULARITY == 0);
    REQUIRE(wanted->offset <= multicast->properties.size &&
            wanted->bytes <= multicast->properties.size - wanted->offset);
    REQUIRE(wanted->device >= 0 && (unsigned)wanted->device < driver.device_count);
    if ((multicast->devices >> wanted->device & 1) == 0)
        return CUDA_ERROR_INVALID_DEVICE;
    /* Hardware would wait for the devices that are missing; nobody could add them meanwhile. */
    if (!multicast_is_complete(multicast))
        return CUDA_ERROR_ILLEGAL_STATE;
    REQUIRE(!overlaps(multicast, wanted));
    struct binding *binding = malloc(sizeof *binding);
    if (binding == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = *wanted;
    binding->next = multicast->bindings;
    multicast->bindings = binding;
    if (binding->physical != NULL)
        physical_keep(binding->physical);
    return CUDA_SUCCESS;
}

/* `device` is CU_DEVICE_INVALID where the memory says which one. */
static CUresult bind_memory(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(flags == 0 && memory_offset % MULTICAST_GRANULARITY == 0);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    memory_lock();
    struct physical *physical = physical_of(memory);
    if (physical != NULL && physical->multicast == NULL && memory_offset <= physical->bytes &&
        bytes <= physical->bytes - memory_offset) {
        const CUdevice owner = physical->properties.location.id;
        result = bind(find(handle), &(struct binding){
                                        .device = device == CU_DEVICE_INVALID ? owner : device,
                                        .offset = offset,
                                        .bytes = bytes,
                                        .physical = physical,
                                    });
    }
    memory_unlock();
    return result;
}

ENTRY cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                         CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                         unsigned long long flags)
{
    return bind_memory(handle, CU_DEVICE_INVALID, offset, memory, memory_offset, bytes, flags);
}

ENTRY cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    return bind_memory(handle, device, offset, memory, memory_offset, bytes, flags);
}

static CUresult bind_address(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct piece piece;
    TRY(driver_check());
    REQUIRE(flags == 0 && memory_holds(address, bytes) && memory_look(address, &piece));
    memory_lock();
    const struct mapping *mapping = mapping_at(address);
    const CUresult result = bind(
        find(handle), &(struct binding){
                          .device = device == CU_DEVICE_INVALID ? (CUdevice)piece.device : device,
                          .offset = offset,
                          .bytes = bytes,
                          .physical = mapping != NULL ? mapping->physical : NULL,
                      });
    memory_unlock();
    return result;
}

ENTRY cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address,
                          size_t bytes, unsigned long long flags)
{
    return bind_address(handle, CU_DEVICE_INVALID, offset, address, bytes, flags);
}

ENTRY cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    return bind_address(handle, device, offset, address, bytes, flags);
}

/* Ends the bindings of a device that lie inside the range; one that crosses it is an error. */
static CUresult unbind(struct multicast *multicast, CUdevice device, uint64_t offset,
                       uint64_t bytes)
{
    bool found = false;
    REQUIRE(multicast != NULL);
    struct binding **link = &multicast->bindings;
    while (*link != NULL) {
        struct binding *binding = *link;
        if (binding->device != device || binding->offset < offset ||
            binding->offset + binding->bytes > offset + bytes) {
            link = &binding->next;
            continue;
        }
        *link = binding->next;
        drop_binding(binding);
        found = true;
    }
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset,
                        size_t bytes)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    memory_lock();
    const CUresult result = unbind(find(handle), ordinal, offset, bytes);
    memory_unlock();
    return result;
}
