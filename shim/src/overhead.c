/*
 * Looking at what is in use on a device.
 *
 * NVML lists processes by their pids on the host, which a process in a container does not know of
 * itself: the one that appears when we make our first context is us.
 */
#include "overhead.h"

#include <unistd.h>

#include "nvml_device.h"

/* This process as NVML numbers it, and as it is called here: a forked child is another. */
static unsigned own_pid;
static int own_pid_is_of;

static bool was_listed(const struct look *before, unsigned pid)
{
    for (unsigned i = 0; i < before->pid_count; i++)
        if (before->pids[i] == pid)
            return true;
    return false;
}

static void recognise(const struct look *before, const nvmlProcessInfo_t *infos, unsigned count)
{
    unsigned fresh = 0;
    unsigned fresh_count = 0;
    for (unsigned i = 0; i < count; i++) {
        if (was_listed(before, infos[i].pid))
            continue;
        fresh_count++;
        fresh = infos[i].pid;
        if (fresh == (unsigned)getpid()) {
            fresh_count = 1;
            break;
        }
    }
    if (fresh_count != 1)
        return;
    own_pid = fresh;
    own_pid_is_of = getpid();
}

void overhead_look(struct look *look, int device, const struct look *before)
{
    look->device = device;
    look->knows_own = look->knows_all = false;
    look->own_bytes = look->all_bytes = 0;
    look->pid_count = 0;
    look->held_bytes = ledger_held((unsigned)device);
    nvmlDevice_t handle;
    if (!nvml_device_open(device, &handle))
        return;
    nvmlMemory_t memory;
    if (REAL(nvmlDeviceGetMemoryInfo, handle, &memory) == NVML_SUCCESS) {
        look->knows_all = true;
        look->all_bytes = memory.used;
    }
    nvmlProcessInfo_t infos[OVERHEAD_PIDS];
    unsigned count = OVERHEAD_PIDS;
    if (REAL(nvmlDeviceGetComputeRunningProcesses_v3, handle, &count, infos) != NVML_SUCCESS)
        return;
    if (own_pid_is_of != getpid() && before != NULL)
        recognise(before, infos, count);
    const bool knows_pid = own_pid_is_of == getpid();
    /* Who is not listed uses nothing; in the first look before the first context, that is us. */
    look->knows_own = knows_pid || before == NULL;
    for (unsigned i = 0; i < count; i++) {
        look->pids[look->pid_count++] = infos[i].pid;
        if (knows_pid && infos[i].pid == own_pid)
            look->own_bytes = infos[i].usedGpuMemory;
    }
}

void overhead_glance(struct look *look, int device)
{
    size_t free = 0;
    size_t total = 0;
    look->device = device;
    look->knows_own = false;
    look->knows_all = real.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS;
    look->all_bytes = total - free;
    look->held_bytes = ledger_held((unsigned)device);
}

uint64_t overhead_growth(const struct look *before, const struct look *after, uint64_t most,
                         uint64_t otherwise)
{
    const bool knows_own = before->knows_own && after->knows_own;
    if (!knows_own && !(before->knows_all && after->knows_all))
        return otherwise;
    const uint64_t seen =
        knows_own ? after->own_bytes - before->own_bytes : after->all_bytes - before->all_bytes;
    const int64_t growth = (int64_t)(seen - (after->held_bytes - before->held_bytes));
    if (growth <= 0)
        return 0;
    return knows_own || (uint64_t)growth <= most ? (uint64_t)growth : otherwise;
}

bool overhead_confirms(int device, uint64_t growth)
{
    struct look look;
    overhead_look(&look, device, NULL);
    return own_pid_is_of == getpid() && look.own_bytes >= look.held_bytes + growth;
}
