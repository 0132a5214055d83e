/*
 * Streams that wait for each other through events: what waits does not overlap.
 *
 * While several streams are in use, an event remembers where the work before it ends, and a stream
 * that waits for it goes on from there at the earliest. An event that was forgotten, because others
 * needed its place, costs a little overlap that there is not.
 */
#include "hook.h"

#include "device.h"
#include "meter.h"
#include "throttle.h"

enum { MARKS = 1024 };

static struct {
    CUevent event;
    int64_t end_ns;
} marks[MARKS];

static unsigned place_of(CUevent event)
{
    return (unsigned)((uint64_t)(uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15) >> 54) % MARKS;
}

/* The meter of the current device while it tells streams apart; NULL: nothing to do. */
static struct meter *apart(void)
{
    int device = device_current();
    if (device < 0 || device >= METERS || !meters[device].open ||
        !__atomic_load_n(&meters[device].several_streams, __ATOMIC_RELAXED))
        return NULL;
    return &meters[device];
}

static CUresult recorded(CUresult result, CUevent event, CUstream stream, bool per_thread)
{
    struct meter *meter = result == CUDA_SUCCESS ? apart() : NULL;
    if (meter != NULL) {
        const struct launch where = {0, stream, per_thread};
        int64_t end_ns = stream_end(meter, throttle_stream(&where), stream);
        unsigned place = place_of(event);
        __atomic_store_n(&marks[place].event, event, __ATOMIC_RELAXED);
        __atomic_store_n(&marks[place].end_ns, end_ns, __ATOMIC_RELAXED);
    }
    return result;
}

static CUresult waited(CUresult result, CUevent event, CUstream stream, bool per_thread)
{
    struct meter *meter = result == CUDA_SUCCESS ? apart() : NULL;
    unsigned place = place_of(event);
    if (meter != NULL && __atomic_load_n(&marks[place].event, __ATOMIC_RELAXED) == event) {
        const struct launch where = {0, stream, per_thread};
        stream_wait(meter, throttle_stream(&where), stream,
                    __atomic_load_n(&marks[place].end_ns, __ATOMIC_RELAXED));
    }
    return result;
}

#define RECORDS(name, per_thread)                                                                  \
    EXPORT CUresult name(CUevent event, CUstream stream)                                           \
    {                                                                                              \
        ENTER(name, event, stream);                                                                \
        return recorded(REAL(name, event, stream), event, stream, per_thread);                     \
    }
RECORDS(cuEventRecord, false)
RECORDS(cuEventRecord_ptsz, true)

#define RECORDS_WITH_FLAGS(name, per_thread)                                                       \
    EXPORT CUresult name(CUevent event, CUstream stream, unsigned flags)                           \
    {                                                                                              \
        ENTER(name, event, stream, flags);                                                         \
        return recorded(REAL(name, event, stream, flags), event, stream, per_thread);              \
    }
RECORDS_WITH_FLAGS(cuEventRecordWithFlags, false)
RECORDS_WITH_FLAGS(cuEventRecordWithFlags_ptsz, true)

#define WAITS(name, per_thread)                                                                    \
    EXPORT CUresult name(CUstream stream, CUevent event, unsigned flags)                           \
    {                                                                                              \
        ENTER(name, stream, event, flags);                                                         \
        return waited(REAL(name, stream, event, flags), event, stream, per_thread);                \
    }
WAITS(cuStreamWaitEvent, false)
WAITS(cuStreamWaitEvent_ptsz, true)
