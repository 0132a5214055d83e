/*
 * Survives the truncation of a mapped file by a handler for SIGBUS.
 *
 * Faults anywhere else go to whoever handled them before us. What this cannot help: a program that
 * blocks SIGBUS, or whose own handler is newer than the last sigbus_rearm.
 */

#include "sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

enum { GUARDS = 4, LAYERS = 4 };

static struct guard {
    uintptr_t start;
    size_t bytes; /* 0: not in use; written last */
    volatile bool *lost;
} guards[GUARDS];

/*
 * A program that replaces our handler may pass faults on to the one it replaced. So a handler is
 * never installed twice: each layer knows whom it replaced, and passing on always ends.
 */
static struct sigaction previous[LAYERS];

static void die_of(int signal_number)
{
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(signal_number, &fatal, NULL);
    raise(signal_number);
}

static void pass_on(const struct sigaction *to, int signal_number, siginfo_t *info, void *context)
{
    if (to->sa_flags & SA_SIGINFO)
        to->sa_sigaction(signal_number, info, context);
    else if (to->sa_handler == SIG_DFL || (to->sa_handler == SIG_IGN && info->si_code > 0))
        die_of(signal_number); /* a fault that is ignored would come back for ever */
    else if (to->sa_handler != SIG_IGN)
        to->sa_handler(signal_number);
}

static bool is_guarded(const siginfo_t *info)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    for (struct guard *guard = guards; guard < guards + GUARDS; guard++) {
        size_t bytes = __atomic_load_n(&guard->bytes, __ATOMIC_ACQUIRE);
        if (info->si_code <= 0 || address - guard->start >= bytes)
            continue;
        void *zeroes = mmap((void *)guard->start, bytes, PROT_READ | PROT_WRITE,
                            MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (zeroes == MAP_FAILED)
            return false;
        *guard->lost = true;
        return true;
    }
    return false;
}

static void handle(int layer, int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (!is_guarded(info))
        pass_on(&previous[layer], signal_number, info, context);
    errno = saved;
}

#define LAYER(number)                                                                              \
    static void handle_##number(int signal_number, siginfo_t *info, void *context)                 \
    {                                                                                              \
        handle(number, signal_number, info, context);                                              \
    }
LAYER(0)
LAYER(1)
LAYER(2)
LAYER(3)

static void (*const layers[LAYERS])(int, siginfo_t *, void *) = {handle_0, handle_1, handle_2,
                                                                 handle_3};
static int next_layer;

void sigbus_rearm(void)
{
    struct sigaction current;
    int layer = __atomic_load_n(&next_layer, __ATOMIC_RELAXED);
    if (layer == LAYERS || sigaction(SIGBUS, NULL, &current) != 0)
        return;
    for (int i = 0; i < layer; i++)
        if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == layers[i])
            return;
    if (!__atomic_compare_exchange_n(&next_layer, &layer, layer + 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return; /* another thread is about it */
    previous[layer] = current;
    struct sigaction ours = {.sa_mask = current.sa_mask,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER |
                                         (current.sa_flags & SA_RESTART)};
    ours.sa_sigaction = layers[layer];
    sigaction(SIGBUS, &ours, NULL);
}

bool sigbus_guard(void *start, size_t bytes, volatile bool *lost)
{
    for (struct guard *guard = guards; guard < guards + GUARDS; guard++) {
        if (guard->bytes != 0)
            continue;
        guard->start = (uintptr_t)start;
        guard->lost = lost;
        __atomic_store_n(&guard->bytes, bytes, __ATOMIC_RELEASE);
        sigbus_rearm();
        return true;
    }
    return false;
}

void sigbus_unguard(void *start)
{
    for (struct guard *guard = guards; guard < guards + GUARDS; guard++)
        if (guard->start == (uintptr_t)start)
            __atomic_store_n(&guard->bytes, 0, __ATOMIC_RELEASE);
}
