/* Taking locks, from the dead if need be. */
#define _GNU_SOURCE
#include "lock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "number.h"
#include "slot.h"

#define WAITERS (UINT32_C(1) << 31) /* somebody may sleep on the word */
#define SPINS 100
#define PATIENCE_NS 1000000 /* how long we sleep before we ask whether the owner lives */

/* FUTEX_WAIT and FUTEX_WAKE; their header is not everywhere where there is a libc. */
enum { FUTEX_SLEEP = 0, FUTEX_ROUSE = 1 };

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool swap(uint32_t *word, uint32_t expected, uint32_t wanted)
{
    return __atomic_compare_exchange_n(word, &expected, wanted, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Puts back what the dead owner's unfinished step changed. Dying in here is fine as well. */
static void undo(struct sim_state *state, struct sim_lock *lock)
{
    uint32_t count = lock->undo_count <= SIM_UNDO ? lock->undo_count : SIM_UNDO;
    while (count > 0) {
        count--;
        uint64_t offset = lock->undo[count].offset;
        if (offset % 8 == 0 && offset <= sizeof(*state) - 8)
            __atomic_store_n((uint64_t *)((char *)state + offset), lock->undo[count].value,
                             __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(&lock->undo_count, count, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
}

static void sleep_on(uint32_t *word, uint32_t seen)
{
    struct timespec patience = {.tv_nsec = PATIENCE_NS};
    syscall(SYS_futex, word, FUTEX_SLEEP, seen, &patience, NULL, 0);
}

static void acquire_slowly(struct sim_view *view, struct sim_lock *lock, uint32_t ticket)
{
    for (int spin = 0; spin < SPINS; spin++) {
        if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == 0 && swap(&lock->owner, 0, ticket))
            return;
        pause_briefly();
    }
    uint64_t suspicious_ns = sim_now() + PATIENCE_NS;
    for (;;) {
        uint32_t owner = __atomic_load_n(&lock->owner, __ATOMIC_RELAXED);
        if (owner == 0) {
            /* We do not know whether more sleep, so whoever we hand over to wakes the next. */
            if (swap(&lock->owner, 0, ticket | WAITERS))
                return;
            continue;
        }
        if (!(owner & WAITERS) && !swap(&lock->owner, owner, owner | WAITERS))
            continue;
        owner |= WAITERS;
        if (sim_now() >= suspicious_ns) {
            if (!sim_ticket_alive(view, owner) && swap(&lock->owner, owner, ticket | WAITERS)) {
                undo(view->state, lock);
                lock->rescues++;
                return;
            }
            suspicious_ns = sim_now() + PATIENCE_NS;
        }
        sleep_on(&lock->owner, owner);
    }
}

static inline void acquire(struct sim_view *view, struct sim_lock *lock, uint32_t ticket)
{
    if (!swap(&lock->owner, 0, ticket))
        acquire_slowly(view, lock, ticket);
}

static inline void hold_device(struct sim_view *view, unsigned device, uint32_t ticket,
                               struct sim_held *held)
{
    held->view = view;
    held->state = view->state;
    held->device = &view->state->devices[device];
    held->lock = &held->device->lock;
    held->index = device;
    held->number = sim_ticket_number(ticket);
    acquire(view, held->lock, ticket);
}

void sim_hold_with(struct sim_view *view, unsigned device, uint32_t ticket, struct sim_held *held)
{
    hold_device(view, device, ticket, held);
}

void sim_hold_slots_with(struct sim_view *view, uint32_t ticket, struct sim_held *held)
{
    *held = (struct sim_held){.view = view,
                              .state = view->state,
                              .lock = &view->state->lock,
                              .number = sim_ticket_number(ticket)};
    acquire(view, held->lock, ticket);
}

/* Who we are to the locks: a process of the node if we already are one, else an observer. */
static uint32_t any_ticket(struct sim_view *view)
{
    uint32_t ticket = __atomic_load_n(&view->process, __ATOMIC_ACQUIRE);
    if (!ticket)
        ticket = __atomic_load_n(&view->observer, __ATOMIC_ACQUIRE);
    if (ticket)
        return ticket;
    sim_views_lock();
    if (!view->observer) {
        uint32_t taken = sim_number_take(view, SIM_PROCESSES, SIM_OBSERVERS, (unsigned)getpid());
        __atomic_store_n(&view->observer, taken, __ATOMIC_RELEASE);
    }
    ticket = view->observer;
    sim_views_unlock();
    return ticket;
}

bool sim_hold(struct sim_view *view, unsigned device, struct sim_held *held)
{
    uint32_t ticket = any_ticket(view);
    if (ticket)
        hold_device(view, device, ticket, held);
    return ticket != 0;
}

bool sim_hold_slots(struct sim_view *view, struct sim_held *held)
{
    uint32_t ticket = any_ticket(view);
    if (ticket)
        sim_hold_slots_with(view, ticket, held);
    return ticket != 0;
}

bool sim_hold_as_process(struct sim_view *view, unsigned device, struct sim_held *held)
{
    for (;;) {
        uint32_t ticket = __atomic_load_n(&view->process, __ATOMIC_ACQUIRE);
        if (__builtin_expect(ticket == 0, 0) && (ticket = sim_slot_take(view)) == 0)
            return false;
        hold_device(view, device, ticket, held);
        if (__builtin_expect(sim_slot_is(held->state, ticket), 1))
            return true;
        /* The program closed our descriptor, so others took us for dead: start anew. */
        sim_unhold(held);
        sim_slot_lost(view, ticket);
    }
}

void sim_unhold(struct sim_held *held)
{
    sim_commit(held);
    if (__atomic_exchange_n(&held->lock->owner, 0, __ATOMIC_RELEASE) & WAITERS)
        syscall(SYS_futex, &held->lock->owner, FUTEX_ROUSE, 1, NULL, NULL, 0);
}
