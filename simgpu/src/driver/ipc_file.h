/*
 * Files beside the node's own that processes of the node share: exported memory and events.
 *
 * Who makes a file holds a lock on it for as long as it lives, so that whoever makes the next one
 * can tell and remove what a killed process left behind.
 */
#pragma once

#include <stdint.h>

enum ipc_kind { IPC_MEMORY, IPC_EVENT };

/* A file of so many zeros under a fresh number, open and locked; -1 when there is no room. */
int ipc_file_make(enum ipc_kind kind, uint64_t bytes, uint64_t *number);

/* Somebody's file, if it has that length; -1 when there is none. */
int ipc_file_open(enum ipc_kind kind, uint64_t number, uint64_t bytes);

/* Removes a file of our own; who has it open keeps it. `end` also closes it. */
void ipc_file_remove(enum ipc_kind kind, uint64_t number);
void ipc_file_end(enum ipc_kind kind, uint64_t number, int file);
