/* Mapping a node: what is refused and why, and what a forked child does with it. */
#define _GNU_SOURCE
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "number.h"

/* Guards the list of views and our numbers in each. */
static pthread_mutex_t views_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_view *views;
static pthread_mutex_t self_mutex = PTHREAD_MUTEX_INITIALIZER; /* taken before views_mutex */
struct sim_view *sim_self;

/* How every version begins its files; the rest of the state may only be read if this fits. */
struct header {
    char magic[8];
    uint32_t layout;
    uint32_t device_count;
    uint64_t file_bytes;
    uint64_t made_wall_ns;
    char boot_id[40];
};
_Static_assert(offsetof(struct header, boot_id) == offsetof(struct sim_state, boot_id), "same");

void sim_views_lock(void)
{
    pthread_mutex_lock(&views_mutex);
}

void sim_views_unlock(void)
{
    pthread_mutex_unlock(&views_mutex);
}

static void before_fork(void)
{
    pthread_mutex_lock(&self_mutex);
    sim_views_lock();
}

static void after_fork(void)
{
    sim_views_unlock();
    pthread_mutex_unlock(&self_mutex);
}

/* The child is nobody yet, and must not keep its parent's numbers locked. */
static void forget_numbers_in_child(void)
{
    for (struct sim_view *view = views; view; view = view->next)
        sim_number_forget(view);
    after_fork();
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, forget_numbers_in_child);
}

/* A sentence for the user when the file is not a node that we can use; else NULL. */
static const char *objection(const struct header *header, uint64_t file_bytes)
{
    if (memcmp(header->magic, "ALIQSIM", sizeof(header->magic)) != 0)
        return "is not a simulated GPU node; make one with `aliquot sim env`";
    if (header->layout != SIM_LAYOUT || header->file_bytes != sizeof(struct sim_state))
        return "was made by another version of the simulated GPU; remove it and make a new one "
               "with `aliquot sim env`";
    if (file_bytes < header->file_bytes)
        return "is a truncated simulated GPU node; remove it and make a new one with "
               "`aliquot sim env`";
    if (header->device_count < 1 || header->device_count > SIM_DEVICES)
        return "is a damaged simulated GPU node; remove it and make a new one with "
               "`aliquot sim env`";
    if (!sim_boot_is_ours(header->boot_id, header->made_wall_ns))
        return "was made before this machine was started; remove it and make a new one with "
               "`aliquot sim env`";
    return NULL;
}

static struct sim_view *map(const char *path, int file, const struct stat *status,
                            const char **reason)
{
    struct header header = {.layout = 0};

    /* A file too short for a header leaves zeros here, which the first check refuses. */
    if (pread(file, &header, sizeof(header), 0) < 0)
        header.layout = 0;
    *reason = objection(&header, (uint64_t)status->st_size);
    if (*reason)
        return NULL;
    struct sim_view *view = calloc(1, sizeof(*view));
    void *memory =
        mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED || !view) {
        *reason = "cannot be mapped: not enough memory or address space";
        free(view);
        return NULL;
    }
    /* Little of the file is ever used, so reading ahead would only fill the memory. */
    madvise(memory, sizeof(struct sim_state), MADV_RANDOM);
    view->state = memory;
    view->keeper = -1;
    view->probe = file;
    view->file_device = (uint64_t)status->st_dev;
    view->file_inode = (uint64_t)status->st_ino;
    memcpy(view->path, path, strlen(path) + 1);
    return view;
}

struct sim_view *sim_view_open(const char *path, char *why, size_t why_bytes)
{
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    char absolute[PATH_MAX];
    struct stat status;
    const char *reason = NULL;
    struct sim_view *view = NULL;

    pthread_once(&watching, watch_forks);
    /* Absolute, because the file is opened again after a fork, wherever the child is by then. */
    int file = realpath(path, absolute) ? open(absolute, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0 || fstat(file, &status) != 0)
        snprintf(why, why_bytes, "%s cannot be opened: %s", path, strerror(errno));
    else if (!(view = map(absolute, file, &status, &reason)))
        snprintf(why, why_bytes, "%s %s", path, reason);
    if (file >= 0 && !view)
        close(file);
    if (view) {
        sim_views_lock();
        view->next = views;
        views = view;
        sim_views_unlock();
    }
    return view;
}

void sim_view_close(struct sim_view *view)
{
    sim_views_lock();
    for (struct sim_view **link = &views; *link; link = &(*link)->next) {
        if (*link == view) {
            *link = view->next;
            break;
        }
    }
    sim_number_forget(view);
    sim_number_forget_probe(view);
    sim_views_unlock();
    munmap(view->state, sizeof(struct sim_state));
    free(view);
}

struct sim_view *sim_view_of(const struct sim_state *state)
{
    struct sim_view *known = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    if (known && known->state == state)
        return known;
    sim_views_lock();
    for (known = views; known && known->state != state;)
        known = known->next;
    sim_views_unlock();
    return known;
}

struct sim_view *sim_view_open_self(const char **why)
{
    static char sentence[PATH_MAX + 256];

    pthread_mutex_lock(&self_mutex);
    struct sim_view *view = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    const char *path = getenv("ALIQUOT_SIM_STATE");
    if (!view && (!path || !*path)) {
        snprintf(sentence, sizeof(sentence),
                 "ALIQUOT_SIM_STATE is not set: it names the simulated GPU node; "
                 "`aliquot sim run` and `aliquot sim env` set it");
    } else if (!view) {
        view = sim_view_open(path, sentence, sizeof(sentence));
        __atomic_store_n(&sim_self, view, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&self_mutex);
    if (!view && why)
        *why = sentence;
    return view;
}

const struct sim_state *sim_node(const char **why)
{
    struct sim_view *view = __atomic_load_n(&sim_self, __ATOMIC_ACQUIRE);
    if (!view)
        view = sim_view_open_self(why);
    return view ? view->state : NULL;
}
