/* Memory that other processes of the node map by a handle of 64 bytes. */
#pragma once

#include "driver.h"

/* What travels inside CUipcMemHandle and CUmemPoolPtrExportData. */
struct ipc_token {
    char magic[8];
    uint64_t file;   /* the number in the file's name */
    uint64_t bytes;  /* of the file */
    uint64_t offset; /* of the allocation in it */
    uint64_t wanted_bytes;
    uint32_t device; /* in the node */
    uint32_t owner;  /* the exporter's process id, to tell it from its own importers */
    uint64_t reserved[2];
};

_Static_assert(sizeof(struct ipc_token) == sizeof(CUipcMemHandle), "the size of a handle");

/* Lets other processes map the block or the allocation that the address lies in. `use` is the only
 * use that may be exported. */
CUresult ipc_export(CUdeviceptr address, unsigned use, struct ipc_token *token);

/* What ends an import: cuIpcCloseMemHandle, or the calls that free pooled memory. */
enum ipc_manner { IPC_BY_HANDLE, IPC_POOLED };

/* Maps another process's memory; the same token again answers the same address. */
CUresult ipc_import(struct context *context, const struct ipc_token *token, enum ipc_manner manner,
                    CUdeviceptr *address);

/* Ends one import of the same manner; the mapping goes with the last. */
CUresult ipc_close(CUdeviceptr address, enum ipc_manner manner);

/* Whether an address is an import that is freed like pooled memory. */
bool ipc_is_pooled(CUdeviceptr address);

void ipc_forget(void);
