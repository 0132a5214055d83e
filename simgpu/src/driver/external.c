/*
 * Memory and semaphores of other programming interfaces.
 *
 * There is no Vulkan or NvSciBuf here to export them. A file descriptor that can be mapped stands
 * for such memory, so that programs which hand one over between processes work; semaphores cannot
 * be imported, and neither can graphics resources.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array.h"
#include "memory.h"

struct external {
    struct context *context;
    uint64_t address; /* where the whole of it is mapped */
    uint64_t bytes;
};

static struct table externals = TABLE(struct external, 1 << 12);

void externals_forget(void)
{
    table_forget(&externals);
}

static void drop_of(void *object, void *argument)
{
    const struct external *external = object;
    if (external->context == argument)
        table_give(&externals, object);
}

void externals_close(const struct context *context)
{
    table_each(&externals, drop_of, (void *)(uintptr_t)context);
}

/* Maps the file over fresh addresses, which end with the context. */
static CUresult map(struct context *context, int file, uint64_t bytes, uint64_t *address)
{
    struct piece *piece = NULL;
    TRY(memory_take_addresses(context, bytes, PIECE_IMPORTED, NULL, &piece));
    void *memory = mmap((void *)(uintptr_t)piece->start, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, file, 0);
    if (memory == MAP_FAILED) {
        memory_free_address(piece->start, 1U << PIECE_IMPORTED);
        return CUDA_ERROR_INVALID_VALUE;
    }
    madvise(memory, bytes, MADV_DONTFORK);
    *address = piece->start;
    return CUDA_SUCCESS;
}

ENTRY cuImportExternalMemory(CUexternalMemory *handle,
                             const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    ENTER(context);
    struct stat status;
    REQUIRE(handle != NULL && description != NULL && description->size > 0);
    if (description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
        description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    const int file = description->handle.fd;
    REQUIRE(fstat(file, &status) == 0 && (uint64_t)status.st_size >= description->size);
    struct external *external = table_take(&externals);
    if (external == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = map(context, file, description->size, &external->address);
    if (result != CUDA_SUCCESS) {
        table_give(&externals, external);
        return result;
    }
    external->context = context;
    external->bytes = description->size;
    /* From now on the descriptor is the driver's. */
    close(file);
    *handle = (CUexternalMemory)(uintptr_t)external;
    return CUDA_SUCCESS;
}

static CUresult find(CUexternalMemory handle, struct external **external)
{
    ENTER(context);
    if (!table_holds(&externals, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *external = (struct external *)handle;
    return CUDA_SUCCESS;
}

/* A buffer is a mapping of its own, which cuMemFree ends. */
ENTRY cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory handle,
                                      const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description)
{
    struct external *external = NULL;
    REQUIRE(address != NULL && description != NULL);
    TRY(find(handle, &external));
    REQUIRE(description->flags == 0 && description->size > 0);
    REQUIRE(description->offset <= external->bytes &&
            description->size <= external->bytes - description->offset);
    REQUIRE(description->offset % (uint64_t)sysconf(_SC_PAGESIZE) == 0);
    struct piece *piece = NULL;
    TRY(memory_take_addresses(external->context, description->size, PIECE_IMPORTED, NULL, &piece));
    /* The same pages a second time; an old size of zero duplicates a shared mapping. */
    void *memory =
        mremap((void *)(uintptr_t)(external->address + description->offset), 0, description->size,
               MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)piece->start);
    if (memory == MAP_FAILED) {
        memory_free_address(piece->start, 1U << PIECE_IMPORTED);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *address = piece->start;
    return CUDA_SUCCESS;
}

ENTRY cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray *mipmap, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *description)
{
    struct external *external = NULL;
    REQUIRE(mipmap != NULL && description != NULL);
    TRY(find(handle, &external));
    REQUIRE(description->offset <= external->bytes);
    return mipmap_over(external->context, &description->arrayDesc, description->numLevels,
                       external->address + description->offset,
                       external->bytes - description->offset, mipmap);
}

ENTRY cuDestroyExternalMemory(CUexternalMemory handle)
{
    struct external *external = NULL;
    TRY(find(handle, &external));
    memory_free_address(external->address, 1U << PIECE_IMPORTED);
    table_give(&externals, external);
    return CUDA_SUCCESS;
}

/* --- what cannot be imported --------------------------------------------------------------- */

ENTRY cuImportExternalSemaphore(CUexternalSemaphore *handle,
                                const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *description)
{
    ENTER(context);
    REQUIRE(handle != NULL && description != NULL);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* So no handle of a semaphore is a valid one. */
ENTRY cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
    (void)handle;
    ENTER(context);
    return CUDA_ERROR_INVALID_HANDLE;
}

ENTRY cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *parameters,
                                      unsigned count, CUstream stream)
{
    (void)stream;
    ENTER(context);
    REQUIRE(semaphores != NULL && parameters != NULL && count > 0);
    return CUDA_ERROR_INVALID_HANDLE;
}
TWIN(cuSignalExternalSemaphoresAsync_ptsz, cuSignalExternalSemaphoresAsync);

ENTRY cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters,
                                    unsigned count, CUstream stream)
{
    (void)stream;
    ENTER(context);
    REQUIRE(semaphores != NULL && parameters != NULL && count > 0);
    return CUDA_ERROR_INVALID_HANDLE;
}
TWIN(cuWaitExternalSemaphoresAsync_ptsz, cuWaitExternalSemaphoresAsync);
