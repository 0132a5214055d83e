/* Events between processes. */
#define _GNU_SOURCE
#include "shared_event.h"

#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ipc_file.h"

enum { FILE_BYTES = 4096, LOOK_NS = 200000 };

/* What lies in the file. */
struct counters {
    uint64_t recorded;
    uint64_t reached;
};

struct shared_event {
    struct shared_event *next;
    struct counters *counters;
    unsigned references; /* the event, and tasks that will touch the counters */
    uint64_t number;     /* in the file's name */
    bool is_own;         /* this process has made the file */
    int file;            /* locked by who made it, for as long as that process lives */
};

/* What travels inside a CUipcEventHandle. */
struct event_token {
    char magic[8];
    uint64_t number;
    uint32_t device; /* in the node */
    uint32_t reserved[11];
};

_Static_assert(sizeof(struct event_token) == sizeof(CUipcEventHandle), "the size of a handle");

static const char token_magic[8] = "ALQIPCE";

static struct shared_event *all; /* that this process has open */

static struct shared_event *map(int file, uint64_t number)
{
    struct shared_event *shared = calloc(1, sizeof *shared);
    void *counters = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == NULL || counters == MAP_FAILED) {
        if (counters != MAP_FAILED)
            munmap(counters, FILE_BYTES);
        free(shared);
        return NULL;
    }
    shared->counters = counters;
    shared->references = 1;
    shared->number = number;
    shared->file = file;
    shared->next = all;
    all = shared;
    return shared;
}

static uint64_t last_record(const struct shared_event *shared)
{
    return __atomic_load_n(&shared->counters->recorded, __ATOMIC_ACQUIRE);
}

/* Nobody waits for a process that cannot get there any more. */
static bool maker_is_dead(const struct shared_event *shared)
{
    if (shared->is_own || flock(shared->file, LOCK_SH | LOCK_NB) != 0)
        return false;
    flock(shared->file, LOCK_UN);
    return true;
}

static bool has_reached(const struct shared_event *shared, uint64_t record)
{
    return __atomic_load_n(&shared->counters->reached, __ATOMIC_ACQUIRE) >= record ||
           maker_is_dead(shared);
}

static void reach(struct shared_event *shared, uint64_t record)
{
    uint64_t *reached = &shared->counters->reached;
    uint64_t before = __atomic_load_n(reached, __ATOMIC_RELAXED);
    while (before < record && !__atomic_compare_exchange_n(reached, &before, record, false,
                                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

bool shared_event_reached(const struct shared_event *shared)
{
    return has_reached(shared, last_record(shared));
}

/* The last reference goes: the event, and tasks that were cancelled or are done. */
static void let_go(struct shared_event *shared)
{
    if (--shared->references > 0)
        return;
    struct shared_event **link = &all;
    while (*link != shared)
        link = &(*link)->next;
    *link = shared->next;
    munmap(shared->counters, FILE_BYTES);
    close(shared->file);
    free(shared);
}

/* Who still waits for an event that its maker gives up need not wait any longer. */
static void give_up(struct shared_event *shared)
{
    reach(shared, last_record(shared));
    ipc_file_remove(IPC_EVENT, shared->number);
}

void shared_event_end(struct shared_event *shared)
{
    if (shared->is_own)
        give_up(shared);
    let_go(shared);
}

void shared_event_hold(struct shared_event *shared)
{
    shared->references++;
}

void shared_events_forget(void)
{
    for (struct shared_event *shared = all; shared != NULL; shared = shared->next)
        close(shared->file);
    all = NULL;
}

__attribute__((destructor)) static void remove_files(void)
{
    for (struct shared_event *shared = all; shared != NULL; shared = shared->next) {
        if (shared->is_own)
            give_up(shared);
    }
}

/* --- recording and waiting ----------------------------------------------------------------- */

struct mark {
    struct shared_event *shared;
    uint64_t record;
};

static void mark_run(struct context *context, void *arguments)
{
    (void)context;
    const struct mark *mark = arguments;
    reach(mark->shared, mark->record);
    order_lock();
    let_go(mark->shared);
    order_unlock();
}

void shared_event_record(struct shared_event *shared, struct context *context,
                         const struct position *position)
{
    const struct mark mark = {shared,
                              __atomic_add_fetch(&shared->counters->recorded, 1, __ATOMIC_ACQ_REL)};
    const struct task task = {
        .after_all = true,
        .run = mark_run,
        .arguments = &mark,
        .argument_bytes = sizeof mark,
    };
    struct position before = {.device = position->device};
    struct position done = {.device = position->device};
    struct position *const behind[] = {&before};
    position_set(&before, position);
    shared->references++;
    if (position_reached(&before) || order_task(context, behind, 1, &task, &done) != CUDA_SUCCESS) {
        reach(shared, mark.record);
        shared->references--;
    }
    position_clear(&before);
    position_clear(&done);
}

static bool mark_is_reached(const void *arguments)
{
    const struct mark *mark = arguments;
    return has_reached(mark->shared, mark->record);
}

static void await_run(struct context *context, void *arguments)
{
    (void)context;
    order_lock();
    let_go(((const struct mark *)arguments)->shared);
    order_unlock();
}

CUresult shared_event_await(struct stream *stream, struct shared_event *shared)
{
    const struct mark mark = {shared, last_record(shared)};
    if (has_reached(shared, mark.record))
        return CUDA_SUCCESS;
    shared->references++;
    const CUresult result = stream_append(stream, &(struct task){
                                                      .ready = mark_is_reached,
                                                      .run = await_run,
                                                      .arguments = &mark,
                                                      .argument_bytes = sizeof mark,
                                                  });
    if (result != CUDA_SUCCESS)
        shared->references--;
    return result;
}

CUresult shared_event_wait(struct context *context, struct shared_event *shared)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    CUresult result = CUDA_SUCCESS;
    const uint64_t record = last_record(shared);
    while (!has_reached(shared, record) && result == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        result = context_check(context);
    }
    order_lock();
    let_go(shared);
    order_unlock();
    return result;
}

/* --- entries ------------------------------------------------------------------------------- */

/* Lock held. What was recorded before the event was exported counts as its first record. */
static CUresult share(struct event *event)
{
    uint64_t number = 0;
    const int file = ipc_file_make(IPC_EVENT, FILE_BYTES, &number);
    struct shared_event *shared = file >= 0 ? map(file, number) : NULL;
    if (shared == NULL) {
        if (file >= 0)
            ipc_file_end(IPC_EVENT, number, file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    shared->is_own = true;
    event->shared = shared;
    if (event->is_recorded)
        shared_event_record(shared, event->context, &event->position);
    return CUDA_SUCCESS;
}

ENTRY cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle)
{
    struct event *event = NULL;
    REQUIRE(handle != NULL);
    TRY(event_lock(event_handle, &event));
    CUresult result = CUDA_SUCCESS;
    if ((event->flags & CU_EVENT_INTERPROCESS) == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (event->shared == NULL)
        result = share(event);
    if (result == CUDA_SUCCESS) {
        struct event_token token = {
            .number = event->shared->number,
            .device = event->context->device->index,
        };
        memcpy(token.magic, token_magic, sizeof token.magic);
        memcpy(handle, &token, sizeof token);
    }
    order_unlock();
    return result;
}

ENTRY cuIpcOpenEventHandle(CUevent *handle, CUipcEventHandle opaque)
{
    ENTER(context);
    REQUIRE(handle != NULL);
    struct event_token token;
    memcpy(&token, &opaque, sizeof token);
    if (memcmp(token.magic, token_magic, sizeof token.magic) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    const int file = ipc_file_open(IPC_EVENT, token.number, FILE_BYTES);
    if (file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = NULL;
    CUresult result = cuEventCreate(handle, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = event_lock(*handle, &event);
    if (result != CUDA_SUCCESS) {
        close(file);
        return result;
    }
    event->shared = map(file, token.number);
    const bool mapped = event->shared != NULL;
    order_unlock();
    if (mapped)
        return CUDA_SUCCESS;
    close(file);
    cuEventDestroy_v2(*handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
