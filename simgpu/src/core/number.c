/* OFD locks as signs of life, which work across pid namespaces and need no clean-up. */
#define _GNU_SOURCE
#include "number.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the bytes lie: beyond the end of the file, away from locks that tools may take on it. */
#define FIRST_BYTE (INT64_C(1) << 40)

static struct flock byte_of(unsigned number)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FIRST_BYTE + number, .l_len = 1};
}

static bool is_node(const struct sim_view *view, int descriptor)
{
    struct stat status;
    return descriptor >= 0 && fstat(descriptor, &status) == 0 &&
           (uint64_t)status.st_dev == view->file_device &&
           (uint64_t)status.st_ino == view->file_inode;
}

static int open_if_node(const struct sim_view *view, const char *path)
{
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor >= 0 && !is_node(view, descriptor)) {
        close(descriptor); /* the node was removed, and another one made in its place */
        return -1;
    }
    return descriptor;
}

/* Opens the file anew: a duplicate would share its locks with the descriptor it is made from. */
static int open_node(const struct sim_view *view)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", view->probe);
    int descriptor = is_node(view, view->probe) ? open_if_node(view, path) : -1;
    return descriptor >= 0 ? descriptor : open_if_node(view, view->path);
}

uint32_t sim_number_take(struct sim_view *view, unsigned first, unsigned count, unsigned start)
{
    if (!is_node(view, view->keeper))
        view->keeper = open_node(view);
    for (unsigned tried = 0; view->keeper >= 0 && tried < count; tried++) {
        unsigned number = first + (start + tried) % count;
        struct flock byte = byte_of(number);
        if (fcntl(view->keeper, F_OFD_SETLK, &byte) != 0)
            continue;
        uint32_t generation =
            __atomic_add_fetch(&view->state->generations[number], 1, __ATOMIC_ACQ_REL);
        return (generation & SIM_TICKET_GENERATION) << SIM_TICKET_SHIFT | (number + 1);
    }
    return 0;
}

void sim_number_forget(struct sim_view *view)
{
    if (is_node(view, view->keeper))
        close(view->keeper);
    view->keeper = -1;
    __atomic_store_n(&view->own, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&view->process, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&view->observer, 0, __ATOMIC_RELEASE);
}

void sim_number_forget_probe(struct sim_view *view)
{
    if (is_node(view, view->probe))
        close(view->probe);
    view->probe = -1;
}

bool sim_number_taken(struct sim_view *view, unsigned number)
{
    bool kept = is_node(view, view->probe);
    int descriptor = kept ? view->probe : open_node(view);
    struct flock byte = byte_of(number);
    bool taken =
        descriptor < 0 || fcntl(descriptor, F_OFD_GETLK, &byte) != 0 || byte.l_type != F_UNLCK;
    if (!kept && descriptor >= 0)
        close(descriptor);
    return taken;
}

bool sim_ticket_alive(struct sim_view *view, uint32_t ticket)
{
    unsigned number = sim_ticket_number(ticket);
    if (number >= SIM_PROCESSES + SIM_OBSERVERS)
        return false; /* nobody we know writes that */
    uint32_t generation = __atomic_load_n(&view->state->generations[number], __ATOMIC_ACQUIRE);
    return (generation & SIM_TICKET_GENERATION) ==
               (ticket >> SIM_TICKET_SHIFT & SIM_TICKET_GENERATION) &&
           sim_number_taken(view, number);
}
