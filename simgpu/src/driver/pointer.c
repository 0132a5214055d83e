/* What can be asked about a pointer: whose memory it is, and of which kind. */
#include <string.h>

#include "host.h"
#include "memory.h"
#include "pool.h"
#include "virtual.h"

/* A pointer as the attributes see it. */
struct subject {
    CUdeviceptr address;
    bool is_host;
    struct piece piece; /* of device memory; of host memory the fields that fit */
};

static bool identify(CUdeviceptr address, struct subject *subject)
{
    *subject = (struct subject){.address = address};
    if (memory_look(address, &subject->piece)) {
        subject->is_host = pool_piece_is_host(&subject->piece);
        return true;
    }
    struct host_range range;
    if (!host_look(address, &range))
        return false;
    subject->is_host = true;
    subject->piece = (struct piece){
        .start = range.start,
        .wanted_bytes = range.bytes,
        .context = range.context,
        .device = (unsigned)range.context->device->ordinal,
        .buffer_id = range.buffer_id,
    };
    return true;
}

/* How many bytes an attribute's answer takes (a boolean: those of an int); 0: there is none. */
static size_t answer_bytes(CUpointer_attribute attribute)
{
    static const uint8_t bytes[] = {
        [CU_POINTER_ATTRIBUTE_CONTEXT] = sizeof(CUcontext),
        [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = sizeof(unsigned),
        [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = sizeof(CUdeviceptr),
        [CU_POINTER_ATTRIBUTE_HOST_POINTER] = sizeof(void *),
        [CU_POINTER_ATTRIBUTE_P2P_TOKENS] = sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS),
        [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_BUFFER_ID] = sizeof(unsigned long long),
        [CU_POINTER_ATTRIBUTE_IS_MANAGED] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = sizeof(CUdeviceptr),
        [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = sizeof(size_t),
        [CU_POINTER_ATTRIBUTE_MAPPED] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = sizeof(uint64_t),
        [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = sizeof(int),
        [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = sizeof(unsigned),
        [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = sizeof(CUmemoryPool),
        [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = sizeof(size_t),
        [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = sizeof(CUdeviceptr),
        [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = sizeof(unsigned long long),
        [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = sizeof(int),
    };
    return (size_t)attribute < sizeof bytes ? bytes[attribute] : 0;
}

static bool answer(const struct subject *subject, CUpointer_attribute attribute, void *data)
{
    const struct piece *piece = &subject->piece;
    const bool managed = !subject->is_host && piece->use == PIECE_MANAGED;
    const bool reserved = !subject->is_host && piece->use == PIECE_RESERVED;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = reserved ? NULL : context_handle(piece->context);
        return !reserved;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = subject->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = subject->address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = subject->is_host || managed ? (void *)(uintptr_t)subject->address : NULL;
        return subject->is_host || managed;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = piece->synchronous;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = piece->buffer_id;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = managed;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = (int)piece->device;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = !subject->is_host && piece->use == PIECE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = piece->start;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = piece->wanted_bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = true;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = reserved ? reserved_handle_types(piece) : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)data = false;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = pool_of_piece(piece);
        return true;
    default: /* tokens for a kernel module that is not simulated */
        return false;
    }
}

ENTRY cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    ENTER(context);
    REQUIRE(data != NULL && answer_bytes(attribute) > 0);
    struct subject subject;
    if (!identify(address, &subject))
        return CUDA_ERROR_INVALID_VALUE;
    /* Written only on success, as some programs rely on. */
    uint64_t value[2] = {0};
    if (!answer(&subject, attribute, value))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, value, answer_bytes(attribute));
    return CUDA_SUCCESS;
}

/* Here an unknown pointer, or an attribute that does not apply, is no error: the answer is zero. */
ENTRY cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                             CUdeviceptr address)
{
    ENTER(context);
    REQUIRE(count > 0 && attributes != NULL && data != NULL);
    struct subject subject;
    const bool known = identify(address, &subject);
    for (unsigned number = 0; number < count; number++) {
        REQUIRE(data[number] != NULL && answer_bytes(attributes[number]) > 0);
        uint64_t value[2] = {0};
        const bool answered = known && answer(&subject, attributes[number], value);
        const int no_device = CU_DEVICE_INVALID;
        if (!answered && attributes[number] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            memcpy(value, &no_device, sizeof no_device);
        memcpy(data[number], value, answer_bytes(attributes[number]));
    }
    return CUDA_SUCCESS;
}

ENTRY cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    ENTER(context);
    REQUIRE(value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    memory_lock();
    struct piece *piece = space_find(address);
    if (piece != NULL)
        piece->synchronous = *(const unsigned *)value != 0;
    memory_unlock();
    return piece != NULL || driver.null_mode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
