/*
 * Process slots: becoming a process of the node, and clearing away the dead.
 *
 * Both may be cut off by a kill after any step. Whoever has the slot's number goes through the
 * locks of all devices before it puts anything into the slot, and a slot is wiped only while its
 * number is seen free under the same lock: so nobody wipes a newcomer whom he has taken for the
 * dead one before him.
 */
#define _GNU_SOURCE
#include "slot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "number.h"
#include "timeline.h"

/* Field 22 of /proc/self/stat; what follows the name in parentheses starts with field 3. */
static uint64_t read_start_ticks(void)
{
    char text[1024];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    char *field = strrchr(text, ')');
    for (int number = 2; field && number < 22; number++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

/* The end of a long path says more than its beginning. */
static void read_executable(char *name, size_t name_bytes)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    size_t kept = strlen(path) < name_bytes ? strlen(path) : name_bytes - 1;
    memcpy(name, path + strlen(path) - kept, kept);
    memset(name + kept, 0, name_bytes - kept);
}

static void introduce(struct sim_held *held, uint32_t ticket)
{
    struct sim_process *process = &held->state->processes[sim_ticket_number(ticket)];
    struct stat status;

    sim_note(held, &process->pid);
    __atomic_store_n(&process->pid, 0, __ATOMIC_RELAXED);
    process->pid_namespace = stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
    process->start_ticks = read_start_ticks();
    read_executable(process->name, sizeof(process->name));
    __atomic_store_n(&process->generation, ticket, __ATOMIC_RELAXED);
    __atomic_store_n(&process->pid, getpid(), __ATOMIC_RELEASE);
}

uint32_t sim_slot_take(struct sim_view *view)
{
    struct sim_held held;

    sim_views_lock();
    uint32_t ticket = view->process;
    if (!ticket && (ticket = sim_number_take(view, 0, SIM_PROCESSES, 0)) != 0) {
        for (unsigned device = 0; device < view->state->device_count; device++) {
            sim_hold_with(view, device, ticket, &held);
            sim_slot_wipe(&held, held.number);
            sim_unhold(&held);
        }
        sim_hold_slots_with(view, ticket, &held);
        introduce(&held, ticket);
        sim_unhold(&held);
        __atomic_store_n(&view->own, &view->state->processes[held.number], __ATOMIC_RELEASE);
        __atomic_store_n(&view->process, ticket, __ATOMIC_RELEASE);
    }
    sim_views_unlock();
    return ticket;
}

void sim_slot_lost(struct sim_view *view, uint32_t ticket)
{
    sim_views_lock();
    if (view->process == ticket) {
        __atomic_store_n(&view->own, NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&view->process, 0, __ATOMIC_RELEASE);
    }
    sim_views_unlock();
}

void sim_slot_wipe(struct sim_held *held, unsigned slot)
{
    struct sim_device *device = held->device;
    struct sim_usage *usage = sim_usage_of(held, slot);

    if (sim_is_runnable(device, slot))
        sim_retire(held, slot);
    if (!held->state->null_mode)
        sim_set(held, &device->used_bytes, device->used_bytes - usage->used_bytes);
    sim_set(held, &device->energy_busy_ns, device->energy_busy_ns + usage->active_ns);
    sim_set(held, &device->gone_launches, device->gone_launches + usage->launches);
    sim_set(held, &usage->used_bytes, 0);
    sim_set(held, &usage->active_ns, 0);
    sim_set(held, &usage->horizon_ns, 0);
    sim_set(held, &usage->launches, 0);
    sim_set(held, &usage->slice_count, 0);
    sim_set(held, &usage->sample_count, 0);
    sim_commit(held);
}

static void bury(struct sim_view *view, unsigned slot)
{
    struct sim_process *process = &view->state->processes[slot];
    struct sim_held held;

    for (unsigned device = 0; device < view->state->device_count; device++) {
        if (!sim_hold(view, device, &held))
            return;
        if (!sim_number_taken(view, slot))
            sim_slot_wipe(&held, slot);
        sim_unhold(&held);
    }
    if (!sim_hold_slots(view, &held))
        return;
    if (!sim_number_taken(view, slot)) {
        sim_note(&held, &process->pid); /* the generation lies in the same word */
        __atomic_store_n(&process->generation, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&process->pid, 0, __ATOMIC_RELAXED);
    }
    sim_unhold(&held);
}

void sim_slots_bury_dead(struct sim_view *view)
{
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (__atomic_load_n(&view->state->processes[slot].pid, __ATOMIC_RELAXED) != 0 &&
            !sim_number_taken(view, slot))
            bury(view, slot);
    }
}
