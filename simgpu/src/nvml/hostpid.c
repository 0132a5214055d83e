/* Finding processes of other pid namespaces in /proc. */
#define _GNU_SOURCE
#include "hostpid.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"

/* A slot that could not be found is looked for again after this time. */
#define RETRY_NS UINT64_C(1000000000)

enum { PROC_PATH_BYTES = 300 }; /* a name in /proc has 255 bytes at most */

/* What was found for a slot; good for as long as the same process has it. */
struct finding {
    uint32_t generation;
    unsigned pid; /* 0: not visible */
    uint64_t searched_ns;
};

static struct finding findings[SIM_PROCESSES]; /* under the session's lock */

/* A process's slot as read at one moment. */
struct wanted {
    unsigned slot;
    uint32_t generation;
    int32_t inner_pid;
    uint64_t pid_namespace;
    uint64_t start_ticks;
};

static bool read_file(const char *path, char *text, size_t text_bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, text_bytes - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static uint64_t pid_namespace_of(const char *pid)
{
    char path[PROC_PATH_BYTES];
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%s/ns/pid", pid);
    return stat(path, &status) == 0 ? (uint64_t)status.st_ino : 0;
}

/* Field 22 of the stat file: when the process started. */
static uint64_t start_ticks_of(const char *pid)
{
    char path[PROC_PATH_BYTES], text[1024];
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    char *field = read_file(path, text, sizeof(text)) ? strrchr(text, ')') : NULL;
    for (int number = 2; field && number < 22; number++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

/* The pid in the innermost namespace; 0 when there is no other namespace than ours. */
static int32_t innermost_pid(const char *pid)
{
    char path[PROC_PATH_BYTES], text[4096];
    snprintf(path, sizeof(path), "/proc/%s/status", pid);
    char *line = read_file(path, text, sizeof(text)) ? strstr(text, "\nNSpid:") : NULL;
    if (!line)
        return 0;
    line += strlen("\nNSpid:");
    line[strcspn(line, "\n")] = '\0';
    char *last = strrchr(line, '\t');
    return last && last > line ? (int32_t)strtol(last, NULL, 10) : 0;
}

/*
 * Whether /proc/<pid> is the wanted process. Its namespace decides; where we may not read that,
 * the moment it started does, which no two processes with the same inner pid are likely to share.
 */
static bool is_wanted(const struct wanted *wanted, const char *pid, int32_t inner_pid)
{
    if (inner_pid != wanted->inner_pid)
        return false;
    uint64_t name_space = pid_namespace_of(pid);
    if (name_space)
        return name_space == wanted->pid_namespace;
    return start_ticks_of(pid) == wanted->start_ticks;
}

static void search_proc(const struct wanted *wanted, unsigned count)
{
    DIR *proc = opendir("/proc");
    uint64_t now = sim_now();

    for (unsigned number = 0; number < count; number++)
        findings[wanted[number].slot] = (struct finding){wanted[number].generation, 0, now};
    for (struct dirent *entry; proc && (entry = readdir(proc)) != NULL;) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        int32_t inner_pid = innermost_pid(entry->d_name);
        for (unsigned number = 0; inner_pid && number < count; number++) {
            if (is_wanted(&wanted[number], entry->d_name, inner_pid))
                findings[wanted[number].slot].pid = (unsigned)strtoul(entry->d_name, NULL, 10);
        }
    }
    if (proc)
        closedir(proc);
}

void find_host_pids(const struct sim_state *node, unsigned pids[SIM_PROCESSES])
{
    struct wanted unknown[SIM_PROCESSES];
    unsigned unknown_count = 0;
    uint64_t own_namespace = pid_namespace_of("self");
    uint64_t now = sim_now();
    bool elsewhere[SIM_PROCESSES] = {false};

    session_lock();
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        const struct sim_process *process = &node->processes[slot];
        struct wanted seen = {.slot = slot};

        pids[slot] = 0;
        seen.generation = __atomic_load_n(&process->generation, __ATOMIC_ACQUIRE);
        seen.inner_pid = __atomic_load_n(&process->pid, __ATOMIC_ACQUIRE);
        seen.pid_namespace = __atomic_load_n(&process->pid_namespace, __ATOMIC_ACQUIRE);
        seen.start_ticks = __atomic_load_n(&process->start_ticks, __ATOMIC_ACQUIRE);
        if (seen.inner_pid <= 0 || !seen.pid_namespace ||
            seen.generation != __atomic_load_n(&process->generation, __ATOMIC_ACQUIRE))
            continue; /* nobody, or just changing hands */
        if (seen.pid_namespace == own_namespace) {
            pids[slot] = (unsigned)seen.inner_pid;
            continue;
        }
        elsewhere[slot] = true;
        const struct finding *known = &findings[slot];
        bool is_fresh = known->pid || now - known->searched_ns < RETRY_NS;
        if (known->generation != seen.generation || !is_fresh)
            unknown[unknown_count++] = seen;
    }
    if (unknown_count)
        search_proc(unknown, unknown_count);
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (elsewhere[slot])
            pids[slot] = findings[slot].pid;
    }
    session_unlock();
}
