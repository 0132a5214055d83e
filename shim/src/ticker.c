/* The ticker's thread: its life, its sleep, forks and exits. */

#define _GNU_SOURCE
#include "ticker.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "budget.h"
#include "forks.h"
#include "hook.h"
#include "libc_symbol.h"
#include "monotonic.h"
#include "probe.h"
#include "throttle.h"

enum { STACK_BYTES = 128 * 1024 };

enum life { UNBORN, STARTING, RUNNING, NEVER };

static int life = UNBORN;
static bool stopping;

/* A futex: how the thread sleeps, if it does. */
enum sleep { AWAKE, NAPPING, DEEP };
static uint32_t asleep;

static void sleep_for(uint64_t ns)
{
    uint32_t napping = NAPPING;
    if (ns != 0) {
        const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                                      .tv_nsec = (long)(ns % 1000000000)};
        syscall(SYS_futex, &asleep, FUTEX_WAIT_PRIVATE, NAPPING, &time, NULL, 0);
    } else if (__atomic_compare_exchange_n(&asleep, &napping, DEEP, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST) &&
               !tick_missed()) {
        syscall(SYS_futex, &asleep, FUTEX_WAIT_PRIVATE, DEEP, NULL, NULL, 0);
    }
}

static void wake(void)
{
    if (__atomic_exchange_n(&asleep, AWAKE, __ATOMIC_SEQ_CST) != AWAKE)
        syscall(SYS_futex, &asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void ticker_notice(void)
{
    if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) == DEEP)
        wake();
}

static void *run(void *unused)
{
    prctl(PR_SET_NAME, "aliquot");
    prctl(PR_SET_TIMERSLACK, 1000UL);
    /* What this thread asks of events must not invalidate anybody's capture. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    thread.inside = 1;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&asleep, NAPPING, __ATOMIC_SEQ_CST);
        sleep_for(tick_meters(monotonic_ns()));
    }
    return unused;
}

/* Exit handlers run before the driver's own end: nothing may ask it anything after that. */
static void stop(void)
{
    __atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
    probes_stop();
}

static void start_as_child(void)
{
    life = UNBORN;
    asleep = AWAKE;
    throttle_captures = 0;
    probes_reset();
    budget_forked();
    for (unsigned i = 0; i < METERS; i++) {
        meters[i].stream = NO_STREAM;
        meters[i].open = false;
    }
}

/*
 * A function of libpthread, which is a library of its own before glibc 2.34: looked up, because a
 * program without threads would otherwise have to load it for nothing.
 */
static void *thread_call(const char *name)
{
    const struct libc_calls *libc = libc_calls();
    void *found = libc->dlsym(RTLD_DEFAULT, name);
    if (found != NULL)
        return found;
    void *library = libc->dlopen("libpthread.so.0", RTLD_NOW);
    return library == NULL ? NULL : libc->dlsym(library, name);
}

static bool start_thread(void)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        thread_call("pthread_create");
    int (*set_stack_bytes)(pthread_attr_t *, size_t) = thread_call("pthread_attr_setstacksize");
    if (create == NULL || set_stack_bytes == NULL)
        return false;
    pthread_attr_t attributes;
    pthread_t thread_id;
    sigset_t all;
    sigset_t before;
    pthread_attr_init(&attributes);
    set_stack_bytes(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* The program's signals are the program's. On Linux this is the mask of the calling thread. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* the guard of the mapped files */
    sigprocmask(SIG_SETMASK, &all, &before);
    bool started = create(&thread_id, &attributes, run, NULL) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static bool start(void)
{
    static bool is_prepared;
    if (!budget_open())
        return false;
    tick_begin(monotonic_ns());
    if (!is_prepared) {
        if (!forks_watch(start_as_child))
            return false;
        atexit(stop);
        is_prepared = true;
    }
    return start_thread();
}

/* Launches of other threads wait for that, so that none is missed. */
static int await_start(void)
{
    int found;
    while ((found = __atomic_load_n(&life, __ATOMIC_ACQUIRE)) == STARTING)
        sched_yield();
    return found;
}

bool ticker_started(void)
{
    int found = __atomic_load_n(&life, __ATOMIC_ACQUIRE);
    if (found == RUNNING)
        return true;
    if (found == UNBORN && __atomic_compare_exchange_n(&life, &found, STARTING, false,
                                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        bool started = start();
        if (!started)
            throttle_on = false;
        __atomic_store_n(&life, started ? RUNNING : NEVER, __ATOMIC_RELEASE);
        return started;
    }
    return await_start() == RUNNING;
}
