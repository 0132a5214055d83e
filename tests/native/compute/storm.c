/*
 * Threads that launch at once on the same and on different streams, under a cap, on a driver of a
 * few lines: built from the shim's own sources under a sanitizer, driven by test_throttle_storm.py.
 *
 * Arguments: a limits file, a usage file, threads, launches per thread, streams, and whether to
 * fork. Prints "balanced" when every launch was counted and nobody is left waiting.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"
#include "device.h"
#include "forks.h"
#include "ledger.h"
#include "libc_symbol.h"
#include "monotonic.h"
#include "throttle.h"

enum { THREADS_MAX = 8, STREAMS_MAX = 8, EVENTS_MAX = 4096, KERNELS = 6 };

/* --- the rest of the shim ------------------------------------------------------------------ */

_Thread_local struct thread thread;
uint8_t gate_is_open = 1;
struct originals real;
struct account_files account_compute;
int8_t device_by_ordinal[DEVICES_MOST];
uint32_t device_contexts;

bool ledger_ready(void)
{
    return true;
}

unsigned ledger_devices(void)
{
    return 1;
}

const uint8_t *ledger_uuid(unsigned device)
{
    return account_compute.body.devices[device].uuid;
}

const struct libc_calls *libc_calls(void)
{
    static const struct libc_calls calls = {.dlsym = dlsym, .dlopen = dlopen};
    return &calls;
}

/* --- the driver ---------------------------------------------------------------------------- */

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static uint64_t stream_ends[STREAMS_MAX];
static uint64_t event_times[EVENTS_MAX];
static unsigned event_count;
static int the_context;

static uint64_t *end_of(CUstream stream)
{
    return &stream_ends[(uintptr_t)stream % STREAMS_MAX];
}

static void launch_on(CUstream stream, uint64_t ns)
{
    pthread_mutex_lock(&driver);
    uint64_t now = monotonic_ns();
    uint64_t *end = end_of(stream);
    *end = (*end > now ? *end : now) + ns;
    pthread_mutex_unlock(&driver);
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&driver);
    *event = event_count < EVENTS_MAX ? (CUevent)&event_times[event_count++] : NULL;
    pthread_mutex_unlock(&driver);
    return *event == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    pthread_mutex_lock(&driver);
    uint64_t now = monotonic_ns();
    uint64_t end = *end_of(stream);
    *(uint64_t *)event = end > now ? end : now;
    pthread_mutex_unlock(&driver);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    pthread_mutex_lock(&driver);
    bool reached = *(uint64_t *)event <= monotonic_ns();
    pthread_mutex_unlock(&driver);
    return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    pthread_mutex_lock(&driver);
    *milliseconds = (float)(*(uint64_t *)end - *(uint64_t *)start) * 1e-6f;
    pthread_mutex_unlock(&driver);
    return CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *context)
{
    *context = (CUcontext)&the_context;
    return CUDA_SUCCESS;
}

static CUresult context_use(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult context_of_stream(CUstream stream, CUcontext *context)
{
    (void)stream;
    return context_current(context);
}

static CUresult context_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult stream_flags(CUstream stream, unsigned *flags)
{
    (void)stream;
    *flags = CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static void install_driver(void)
{
    real.cuEventCreate = event_create;
    real.cuEventDestroy_v2 = event_destroy;
    real.cuEventRecord = event_record;
    real.cuEventRecord_ptsz = event_record;
    real.cuEventQuery = event_query;
    real.cuEventElapsedTime = event_elapsed;
    real.cuCtxGetCurrent = context_current;
    real.cuCtxSetCurrent = context_use;
    real.cuCtxPushCurrent_v2 = context_use;
    real.cuCtxPopCurrent_v2 = context_current;
    real.cuCtxGetDevice = context_device;
    real.cuStreamGetCtx = context_of_stream;
    real.cuStreamGetFlags = stream_flags;
    real.cuThreadExchangeStreamCaptureMode = capture_mode;
}

/* --- the storm ----------------------------------------------------------------------------- */

static unsigned launches_each;
static unsigned stream_count;

static void launch_once(unsigned number)
{
    static const uint64_t sizes_ns[KERNELS] = {5000, 20000, 50000, 100000, 20000, 5000};
    unsigned kernel = number % KERNELS;
    CUstream stream = (CUstream)(uintptr_t)(16 + number % stream_count);
    uint64_t key = (kernel + 1) * UINT64_C(0x10001);
    if (throttle_charge(key, (uintptr_t)stream)) {
        launch_on(stream, sizes_ns[kernel]);
        return;
    }
    const struct launch launch = {key, stream, false};
    struct probe *probe = throttle_admit(&launch);
    launch_on(stream, sizes_ns[kernel]);
    throttle_launched(probe, CUDA_SUCCESS);
}

static void *storm(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed;
    for (unsigned i = 0; i < launches_each; i++)
        launch_once((unsigned)rand_r(&random));
    return NULL;
}

static void run_threads(unsigned count)
{
    pthread_t threads[THREADS_MAX];
    for (unsigned i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, storm, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* --- the files ----------------------------------------------------------------------------- */

static void *map(const char *path, int protection, size_t *bytes)
{
    int descriptor = open(path, protection & PROT_WRITE ? O_RDWR : O_RDONLY);
    *bytes = (size_t)lseek(descriptor, 0, SEEK_END);
    void *start = mmap(NULL, *bytes, protection, MAP_SHARED, descriptor, 0);
    if (descriptor < 0 || start == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    close(descriptor);
    return start;
}

static void open_files(const char *limits, const char *usage)
{
    struct account_files *files = &account_compute;
    files->limits = map(limits, PROT_READ, &files->limits_bytes);
    files->usage = map(usage, PROT_READ | PROT_WRITE, &files->usage_bytes);
    memcpy(&files->shape, files->usage, sizeof files->shape);
    files->slot = limits_read(files->limits, files->limits_bytes, ACCOUNT_COMPUTE, &files->body);
    if (files->slot < 0)
        exit(2);
}

static bool is_balanced(uint64_t launched)
{
    const struct meter *meter = &meters[0];
    return __atomic_load_n(&meter->launches, __ATOMIC_SEQ_CST) == launched &&
           __atomic_load_n(&meter->waiters, __ATOMIC_SEQ_CST) == 0 &&
           __atomic_load_n(&meter->turns_over, __ATOMIC_SEQ_CST) ==
               __atomic_load_n(&meter->turns_taken, __ATOMIC_SEQ_CST) &&
           meter_charged(meter) > 0;
}

int main(int count, char **arguments)
{
    if (count != 7)
        return 2;
    open_files(arguments[1], arguments[2]);
    install_driver();
    unsigned threads = (unsigned)atoi(arguments[3]);
    launches_each = (unsigned)atoi(arguments[4]);
    stream_count = (unsigned)atoi(arguments[5]);
    run_threads(threads);
    bool balanced = is_balanced((uint64_t)threads * launches_each);
    if (atoi(arguments[6]) != 0) {
        /* The child has no ticker until it launches, and an account of its own. */
        pid_t child = fork();
        if (child == 0) {
            for (unsigned i = 0; i < launches_each; i++)
                launch_once(i);
            _exit(is_balanced((uint64_t)(threads + 1) * launches_each) ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        balanced = balanced && status == 0;
        run_threads(threads);
    }
    puts(balanced ? "balanced" : "lost");
    return balanced ? 0 : 1;
}
