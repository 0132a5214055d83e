/* Finds the limits and usage files and refuses everything but four good ones. */

#define _GNU_SOURCE
#include "account_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sigbus.h"

/* Tests put the container's root elsewhere; nothing at run time can. */
#ifndef ALIQUOT_ROOT
#define ALIQUOT_ROOT ""
#endif

enum { PLACE_BYTES = 256 };

/* Where the directories of both kinds are, for limits and for usage. */
struct places {
    char limits[PLACE_BYTES];
    char usage[PLACE_BYTES];
};

struct half {
    const char *name;
    uint32_t kind; /* enum account_kind */
};

static const struct half MEMORY = {"memory", ACCOUNT_MEMORY};
static const struct half COMPUTE = {"compute", ACCOUNT_COMPUTE};

struct opened {
    int fd;
    size_t bytes;
    char path[PLACE_BYTES + 16];
};

__attribute__((format(printf, 2, 3))) static bool refuse(char why[WHY_BYTES], const char *format,
                                                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, WHY_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

/* Anything but "there is no such thing" is there: a directory we may not see into is, too. */
static bool is_there(const char *path)
{
    struct stat ignored;
    return stat(path, &ignored) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static bool find(struct places *places, char why[WHY_BYTES])
{
    if (is_there(ALIQUOT_ROOT "/etc/aliquot/memory") ||
        is_there(ALIQUOT_ROOT "/etc/aliquot/compute")) {
        strcpy(places->limits, ALIQUOT_ROOT "/etc/aliquot");
        strcpy(places->usage, ALIQUOT_ROOT "/run/aliquot");
        return true;
    }
    const char *run = secure_getenv("ALIQUOT_RUN");
    if (run == NULL || run[0] == '\0')
        return refuse(why, "there are no limits in /etc/aliquot, and ALIQUOT_RUN names no run");
    if (run[0] != '/' || strlen(run) >= PLACE_BYTES)
        return refuse(why, "ALIQUOT_RUN does not name a run's directory");
    strcpy(places->limits, run);
    strcpy(places->usage, run);
    return true;
}

static bool open_file(struct opened *file, const char *place, const char *kind, const char *name,
                      int flags, char why[WHY_BYTES])
{
    snprintf(file->path, sizeof file->path, "%s/%s/%s", place, kind, name);
    struct stat status;
    /* Not blocking, because a pipe in its place must not hold up the program. */
    file->fd = open(file->path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file->fd < 0)
        return refuse(why, "cannot open %s: %s", file->path, strerror(errno));
    if (fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode)) {
        file->bytes = (size_t)status.st_size;
        return true;
    }
    close(file->fd);
    return refuse(why, "%s is not a file", file->path);
}

static bool map_limits(struct account_files *files, const struct places *places,
                       const struct half *half, char why[WHY_BYTES])
{
    struct opened file;
    if (!open_file(&file, places->limits, half->name, "limits", O_RDONLY, why))
        return false;
    if (file.bytes < sizeof(struct limits_header)) {
        close(file.fd);
        return refuse(why, "%s %s", file.path, limits_fault_text(LIMITS_TOO_SHORT));
    }
    files->limits_bytes = file.bytes < LIMITS_FILE_BYTES ? file.bytes : LIMITS_FILE_BYTES;
    void *start = mmap(NULL, files->limits_bytes, PROT_READ, MAP_SHARED, file.fd, 0);
    close(file.fd);
    if (start == MAP_FAILED)
        return refuse(why, "cannot map %s: %s", file.path, strerror(errno));
    files->limits = start;
    if (!sigbus_guard(start, files->limits_bytes, &files->limits_lost))
        return refuse(why, "cannot guard %s", file.path);
    files->slot = limits_read(start, files->limits_bytes, half->kind, &files->body);
    return files->slot >= 0 || refuse(why, "%s %s", file.path, limits_fault_text(files->slot));
}

static bool map_usage(struct account_files *files, const struct places *places,
                      const struct half *half, char why[WHY_BYTES])
{
    struct opened file;
    if (!open_file(&file, places->usage, half->name, "usage", O_RDWR, why))
        return false;
    if (file.bytes < sizeof files->shape) {
        close(file.fd);
        return refuse(why, "%s %s", file.path, usage_fault_text(USAGE_TOO_SHORT));
    }
    size_t bytes = file.bytes < USAGE_FILE_BYTES_MAX ? file.bytes : USAGE_FILE_BYTES_MAX;
    files->usage_bytes = bytes;
    files->usage = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    close(file.fd);
    if (files->usage == MAP_FAILED)
        return refuse(why, "cannot map %s: %s", file.path, strerror(errno));
    if (!sigbus_guard(files->usage, bytes, &files->usage_lost))
        return refuse(why, "cannot guard %s", file.path);
    /* The copy is what counts from now on: whatever becomes of the file, the shape stays. */
    memcpy(&files->shape, files->usage, sizeof files->shape);
    int fault = usage_check(&files->shape, bytes, half->kind);
    if (fault != 0)
        return refuse(why, "%s %s", file.path, usage_fault_text(fault));
    if (files->shape.device_count != files->body.head.device_count)
        return refuse(why, "%s is for another number of GPUs than the limits", file.path);
    return true;
}

static void drop(void *start, size_t bytes)
{
    if (start == NULL || start == MAP_FAILED)
        return;
    sigbus_unguard(start);
    munmap(start, bytes);
}

static bool open_half(struct account_files *files, const struct places *places,
                      const struct half *half, char why[WHY_BYTES])
{
    memset(files, 0, sizeof *files);
    if (map_limits(files, places, half, why) && map_usage(files, places, half, why))
        return true;
    drop((void *)(uintptr_t)files->limits, files->limits_bytes);
    drop(files->usage, files->usage_bytes);
    return false;
}

bool account_files_open(struct account_files *memory, struct account_files *compute,
                        char why[WHY_BYTES])
{
    struct places places;
    if (!find(&places, why) || !open_half(memory, &places, &MEMORY, why))
        return false;
    if (open_half(compute, &places, &COMPUTE, why))
        return true;
    drop((void *)(uintptr_t)memory->limits, memory->limits_bytes);
    drop(memory->usage, memory->usage_bytes);
    return false;
}
