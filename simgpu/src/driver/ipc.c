/*
 * Memory between processes.
 *
 * What is exported moves from private memory into a file beside the node's own, under the same
 * addresses; importers map that file.
 */
#define _GNU_SOURCE
#include "ipc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copy.h"
#include "ipc_file.h"
#include "memory.h"
#include "stream.h"

static const char token_magic[8] = "ALQIPCM";

/* A region of ours that others may map. */
struct exported {
    struct exported *next;
    uint64_t start;
    uint64_t number; /* in the file's name */
    int file;        /* open for its lock */
};

/* A region of another process that is mapped here. */
struct imported {
    uint64_t file;
    enum ipc_manner manner;
    unsigned opened;
};

static struct exported *exports;

/* --- exporting; lock held ------------------------------------------------------------------ */

static bool is_zero(const char *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* Writes what stands at the addresses into the file, leaving out what was never written. */
static bool write_out(int file, uint64_t start, uint64_t bytes)
{
    enum { STEP = 64 << 10 };
    const char *memory = (const char *)(uintptr_t)start;
    for (uint64_t offset = 0; offset < bytes; offset += STEP) {
        if (!is_zero(memory + offset, STEP) &&
            pwrite(file, memory + offset, STEP, (off_t)offset) != STEP)
            return false;
    }
    return true;
}

static bool move_into(int file, struct piece *region)
{
    copies_pause();
    const bool written = write_out(file, region->start, region->bytes);
    void *memory = MAP_FAILED;
    if (written)
        memory = mmap((void *)(uintptr_t)region->start, region->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
    if (memory != MAP_FAILED)
        madvise(memory, region->bytes, MADV_DONTFORK);
    copies_resume();
    return memory != MAP_FAILED;
}

static struct exported *export_region(struct piece *region)
{
    struct exported *export = calloc(1, sizeof *export);
    if (export == NULL)
        return NULL;
    export->start = region->start;
    export->file = ipc_file_make(IPC_MEMORY, region->bytes, &export->number);
    if (export->file < 0 || !move_into(export->file, region)) {
        if (export->file >= 0)
            ipc_file_end(IPC_MEMORY, export->number, export->file);
        free(export);
        return NULL;
    }
    region->is_exported = true;
    export->next = exports;
    exports = export;
    return export;
}

static struct exported *find_export(uint64_t start)
{
    struct exported *export = exports;
    while (export != NULL && export->start != start)
        export = export->next;
    return export;
}

/* The region ends: its file goes, and its addresses become private memory again. */
void exported_end(struct piece *region)
{
    for (struct exported **link = &exports; *link != NULL; link = &(*link)->next) {
        struct exported *export = *link;
        if (export->start != region->start)
            continue;
        ipc_file_end(IPC_MEMORY, export->number, export->file);
        *link = export->next;
        free(export);
        break;
    }
    space_renew(region->start, region->bytes);
}

static CUresult export_locked(CUdeviceptr address, unsigned use, struct ipc_token *token)
{
    struct piece *piece = space_find(address);
    REQUIRE(piece != NULL && (unsigned)piece->use == use);
    /* Small allocations are shared with the block they lie in, as on hardware. */
    struct piece *region = piece->heap != NULL ? piece->region : piece;
    struct exported *export =
        region->is_exported ? find_export(region->start) : export_region(region);
    if (export == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *token = (struct ipc_token){
        .file = export->number,
        .bytes = region->bytes,
        .offset = piece->start - region->start,
        .wanted_bytes = piece->wanted_bytes,
        .device = driver.devices[piece->device].index,
        .owner = (uint32_t)getpid(),
    };
    memcpy(token->magic, token_magic, sizeof token->magic);
    return CUDA_SUCCESS;
}

CUresult ipc_export(CUdeviceptr address, unsigned use, struct ipc_token *token)
{
    memory_lock();
    const CUresult result = export_locked(address, use, token);
    memory_unlock();
    return result;
}

/* What is still exported when the program ends. */
__attribute__((destructor)) static void remove_files(void)
{
    for (struct exported *export = exports; export != NULL; export = export->next)
        ipc_file_end(IPC_MEMORY, export->number, export->file);
}

void ipc_forget(void)
{
    for (struct exported *export = exports; export != NULL; export = export->next)
        close(export->file);
    exports = NULL;
}

/* --- importing ----------------------------------------------------------------------------- */

static bool is_ours(const struct ipc_token *token)
{
    for (const struct exported *export = exports; export != NULL; export = export->next) {
        if (export->number == token->file)
            return true;
    }
    return false;
}

/* What the context has already mapped of the token's file; lock held. */
static struct piece *find_import(const struct context *context, uint64_t file)
{
    for (struct piece *piece = context->memory->pieces; piece != NULL; piece = piece->next) {
        const struct imported *imported = piece->detail;
        if (piece->use == PIECE_IMPORTED && imported != NULL && imported->file == file)
            return piece;
    }
    return NULL;
}

static CUresult map(struct context *context, const struct ipc_token *token, enum ipc_manner manner,
                    struct piece **piece)
{
    const int file = ipc_file_open(IPC_MEMORY, token->file, token->bytes);
    REQUIRE(file >= 0);
    struct imported *imported = calloc(1, sizeof *imported);
    if (imported == NULL) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *imported = (struct imported){.file = token->file, .manner = manner};
    const CUresult result =
        memory_take_addresses(context, token->bytes, PIECE_IMPORTED, imported, piece);
    void *memory = MAP_FAILED;
    if (result == CUDA_SUCCESS)
        memory = mmap((void *)(uintptr_t)(*piece)->start, token->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
    close(file);
    if (result != CUDA_SUCCESS) {
        free(imported);
        return result;
    }
    if (memory == MAP_FAILED) {
        memory_free_address((*piece)->start, 1U << PIECE_IMPORTED);
        return CUDA_ERROR_MAP_FAILED;
    }
    madvise(memory, token->bytes, MADV_DONTFORK);
    return CUDA_SUCCESS;
}

CUresult ipc_import(struct context *context, const struct ipc_token *token, enum ipc_manner manner,
                    CUdeviceptr *address)
{
    REQUIRE(memcmp(token->magic, token_magic, sizeof token->magic) == 0);
    REQUIRE(token->offset < token->bytes && token->bytes % BLOCK_BYTES == 0);
    memory_lock();
    const bool ours = is_ours(token);
    struct piece *piece = find_import(context, token->file);
    memory_unlock();
    if (ours)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (piece == NULL)
        TRY(map(context, token, manner, &piece));
    memory_lock();
    ((struct imported *)piece->detail)->opened++;
    memory_unlock();
    *address = piece->start + token->offset;
    return CUDA_SUCCESS;
}

/* The import that an address lies in, if it ends in this manner; lock held. */
static struct piece *import_at(CUdeviceptr address, enum ipc_manner manner)
{
    struct piece *piece = space_find(address);
    if (piece == NULL || piece->use != PIECE_IMPORTED || piece->detail == NULL)
        return NULL;
    return ((const struct imported *)piece->detail)->manner == manner ? piece : NULL;
}

bool ipc_is_pooled(CUdeviceptr address)
{
    memory_lock();
    const bool pooled = import_at(address, IPC_POOLED) != NULL;
    memory_unlock();
    return pooled;
}

CUresult ipc_close(CUdeviceptr address, enum ipc_manner manner)
{
    memory_lock();
    struct piece *piece = import_at(address, manner);
    if (piece != NULL && --((struct imported *)piece->detail)->opened == 0)
        memory_drop(piece);
    memory_unlock();
    return piece != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- entries ------------------------------------------------------------------------------- */

ENTRY cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    ENTER(context);
    REQUIRE(handle != NULL);
    struct ipc_token token;
    TRY(ipc_export(address, PIECE_DEVICE, &token));
    memcpy(handle, &token, sizeof token);
    return CUDA_SUCCESS;
}

ENTRY cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    ENTER(context);
    REQUIRE(address != NULL && (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0);
    struct ipc_token token;
    memcpy(&token, &handle, sizeof token);
    return ipc_import(context, &token, IPC_BY_HANDLE, address);
}
TWIN(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2);

ENTRY cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER(context);
    TRY(streams_wait(context));
    return ipc_close(address, IPC_BY_HANDLE);
}
