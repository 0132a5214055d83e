/* Files beside the node's own that processes of the node share. */
#define _GNU_SOURCE
#include "ipc_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "driver.h"
#include "kernel.h"

enum { DIGITS = 16 };

static const char *const kinds[] = {[IPC_MEMORY] = "memory", [IPC_EVENT] = "event"};

static bool path_of(enum ipc_kind kind, uint64_t number, char path[PATH_MAX])
{
    const char *state = getenv("ALIQUOT_SIM_STATE");
    const int length = snprintf(path, PATH_MAX, "%s.%s-%0*llx", state != NULL ? state : "",
                                kinds[kind], DIGITS, (unsigned long long)number);
    return length > 0 && length < PATH_MAX;
}

/* Removes a file whose maker is dead: nobody holds its lock. */
static void remove_if_dead(const char *path)
{
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    close(file);
}

static void remove_dead(enum ipc_kind kind)
{
    char prefix[PATH_MAX];
    if (!path_of(kind, 0, prefix))
        return;
    prefix[strlen(prefix) - DIGITS] = '\0';
    const char *slash = strrchr(prefix, '/');
    const char *name = slash != NULL ? slash + 1 : prefix;
    const int folder_length = (int)(name - prefix);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s", folder_length, prefix);
    DIR *files = opendir(slash != NULL ? path : ".");
    if (files == NULL)
        return;
    for (struct dirent *entry = readdir(files); entry != NULL; entry = readdir(files)) {
        const int length =
            snprintf(path, sizeof path, "%.*s%s", folder_length, prefix, entry->d_name);
        if (strncmp(entry->d_name, name, strlen(name)) == 0 && length < PATH_MAX)
            remove_if_dead(path);
    }
    closedir(files);
}

/* Pages come with use; without room for them a later write would kill the program. */
static bool has_room(int file, uint64_t bytes)
{
    struct statvfs room;
    return fstatvfs(file, &room) == 0 && room.f_bavail * room.f_frsize >= bytes;
}

int ipc_file_make(enum ipc_kind kind, uint64_t bytes, uint64_t *number)
{
    char path[PATH_MAX];
    remove_dead(kind);
    if (!kernel_random(number, sizeof *number) || !path_of(kind, *number, path))
        return -1;
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return -1;
    if (!has_room(file, bytes) || flock(file, LOCK_EX | LOCK_NB) != 0 ||
        ftruncate(file, (off_t)bytes) != 0) {
        driver_log("no room for %llu bytes beside the node's file", (unsigned long long)bytes);
        ipc_file_end(kind, *number, file);
        return -1;
    }
    return file;
}

int ipc_file_open(enum ipc_kind kind, uint64_t number, uint64_t bytes)
{
    char path[PATH_MAX];
    struct stat status;
    if (!path_of(kind, number, path))
        return -1;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && (fstat(file, &status) != 0 || (uint64_t)status.st_size != bytes)) {
        close(file);
        return -1;
    }
    return file;
}

void ipc_file_remove(enum ipc_kind kind, uint64_t number)
{
    char path[PATH_MAX];
    if (path_of(kind, number, path))
        unlink(path);
}

void ipc_file_end(enum ipc_kind kind, uint64_t number, int file)
{
    ipc_file_remove(kind, number);
    close(file);
}
