/*
 * Tells living processes from dead ones by pid, start time and pid namespace.
 *
 * Judged dead wrongly, a process would lose what it holds from the account, and the cap would be
 * passed. So every doubt (no /proc, another namespace, not permitted to ask) counts as alive.
 */

#include "liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "usage_file.h"

struct status {
    char state;
    unsigned long threads;
    uint32_t start_id;
};

/* Reads a stat file of /proc; the name in it may contain anything, so fields count from its last
 * ')'. */
static bool read_status(const char *path, struct status *status)
{
    char text[1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *rest = strrchr(text, ')');
    unsigned long long start_ticks;
    if (rest == NULL || sscanf(rest + 1,
                               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                               "%*s %lu %*s %llu",
                               &status->state, &status->threads, &start_ticks) != 3)
        return false;
    status->start_id = (uint32_t)(start_ticks % USAGE_START_MASK) + 1;
    return true;
}

/* What a process knows about itself; it can change by a fork only. */
struct self {
    int32_t pid;
    uint32_t namespace_id;
    bool has_proc; /* a /proc of another pid namespace would answer about other processes */
};

static struct self self(void)
{
    struct self self = {.pid = getpid()};
    struct stat namespace;
    /* Remainders are counted from 1, because 0 stands for "unknown". */
    if (stat("/proc/self/ns/pid", &namespace) == 0)
        self.namespace_id = (uint32_t)(namespace.st_ino % USAGE_NAMESPACE_MASK) + 1;
    char link[16] = "";
    self.has_proc = readlink("/proc/self", link, sizeof link - 1) > 0 && atoi(link) == self.pid;
    return self;
}

uint64_t liveness_self(void)
{
    struct self me = self();
    struct status status = {0};
    char path[48];
    /* By way of the first thread: emulators (qemu-user) make up an own /proc/self/stat, and others
     * would then find that our start time is not what we say. */
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", me.pid);
    if (me.has_proc)
        read_status(path, &status);
    return usage_owner((struct usage_name){me.pid, me.namespace_id, status.start_id});
}

static bool is_dead(struct usage_name name, const struct self *judge)
{
    if (name.pid <= 0 || name.namespace_id == 0 || name.namespace_id != judge->namespace_id)
        return false;
    if (kill(name.pid, 0) != 0 && errno == ESRCH)
        return true;
    struct status status;
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", name.pid);
    if (!judge->has_proc || !read_status(path, &status))
        return false;
    /* The leader of a process whose other threads live on is a zombie, too. */
    if ((status.state == 'Z' || status.state == 'X') && status.threads <= 1)
        return true;
    return name.start_id != 0 && name.start_id != status.start_id;
}

bool liveness_is_dead(uint64_t owner)
{
    struct self me = self();
    return is_dead(usage_name(owner), &me);
}

int process_is_dead(int32_t pid, uint32_t namespace_id, uint32_t start_id)
{
    struct self me = self();
    return is_dead((struct usage_name){pid, namespace_id, start_id}, &me);
}
