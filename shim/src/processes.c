/*
 * NVML's lists of processes, without those of other containers.
 *
 * A list is asked for twice: for its length, and then for its contents. It is fetched whole and
 * narrowed each time, so that both answers agree.
 */
#include <sys/mman.h>

#include "ledger.h"
#include "nvml_device.h"
#include "private.h"

enum { LISTED_MOST = 4096 };

static bool is_ours(unsigned pid)
{
    return ledger_ready() && ledger_knows_pid((int32_t)pid);
}

/* How many of the list fit where the program wants them, and whether those are all. */
static nvmlReturn_t hand_over(unsigned count, unsigned *room, bool has_place)
{
    const bool fits = count <= *room && (has_place || count == 0);
    *room = count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/*
 * Narrows one list: `fetch` fills `all` and `count`, what is ours goes to `place`, whose room is
 * in `*room`. All lists have the same protocol for lengths, though their elements differ.
 */
#define NARROW(type, place, room, fetch)                                                           \
    __extension__({                                                                                \
        type *all = private_pages(LISTED_MOST * sizeof *all);                                      \
        unsigned count = LISTED_MOST;                                                              \
        nvmlReturn_t narrowed = all == NULL ? NVML_ERROR_MEMORY : (fetch);                         \
        if (narrowed == NVML_SUCCESS) {                                                            \
            unsigned kept = 0;                                                                     \
            for (unsigned i = 0; i < count; i++)                                                   \
                if (is_ours(all[i].pid))                                                           \
                    all[kept++] = all[i];                                                          \
            const unsigned fitting = *(room) < kept ? *(room) : kept;                              \
            for (unsigned i = 0; (place) != NULL && i < fitting; i++)                              \
                (place)[i] = all[i];                                                               \
            narrowed = hand_over(kept, room, (place) != NULL);                                     \
        }                                                                                          \
        if (all != NULL)                                                                           \
            munmap(all, LISTED_MOST * sizeof *all);                                                \
        narrowed;                                                                                  \
    })

#define LISTS_PROCESSES(name, type)                                                                \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *room, type *infos)                 \
    {                                                                                              \
        ENTER_NVML(name, device, room, infos);                                                     \
        if (room == NULL)                                                                          \
            return real.name(device, room, infos);                                                 \
        return NARROW(type, infos, room, REAL(name, device, &count, all));                         \
    }
LISTS_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
LISTS_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
LISTS_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
LISTS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
LISTS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
LISTS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
LISTS_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
LISTS_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
LISTS_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t *list)
{
    ENTER_NVML(nvmlDeviceGetRunningProcessDetailList, device, list);
    if (list == NULL)
        return real.nvmlDeviceGetRunningProcessDetailList(device, list);
    nvmlProcessDetailList_t whole = *list;
    whole.numProcArrayEntries = LISTED_MOST;
    return NARROW(nvmlProcessDetail_v1_t, list->procArray, &list->numProcArrayEntries,
                  (whole.procArray = all,
                   narrowed = REAL(nvmlDeviceGetRunningProcessDetailList, device, &whole),
                   count = whole.numProcArrayEntries, narrowed));
}

/* --- utilisation ----------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *room, unsigned long long since)
{
    ENTER_NVML(nvmlDeviceGetProcessUtilization, device, samples, room, since);
    if (room == NULL)
        return real.nvmlDeviceGetProcessUtilization(device, samples, room, since);
    return NARROW(nvmlProcessUtilizationSample_t, samples, room,
                  REAL(nvmlDeviceGetProcessUtilization, device, all, &count, since));
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *list)
{
    ENTER_NVML(nvmlDeviceGetProcessesUtilizationInfo, device, list);
    if (list == NULL)
        return real.nvmlDeviceGetProcessesUtilizationInfo(device, list);
    nvmlProcessesUtilizationInfo_t whole = *list;
    whole.processSamplesCount = LISTED_MOST;
    return NARROW(nvmlProcessUtilizationInfo_v1_t, list->procUtilArray, &list->processSamplesCount,
                  (whole.procUtilArray = all,
                   narrowed = REAL(nvmlDeviceGetProcessesUtilizationInfo, device, &whole),
                   count = whole.processSamplesCount, narrowed));
}

/* --- accounting ------------------------------------------------------------------------------ */

/* A list of bare pids, in the shape of the others. */
struct listed_pid {
    unsigned pid;
};

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *room,
                                                unsigned int *pids)
{
    ENTER_NVML(nvmlDeviceGetAccountingPids, device, room, pids);
    if (room == NULL)
        return real.nvmlDeviceGetAccountingPids(device, room, pids);
    return NARROW(struct listed_pid, (struct listed_pid *)pids, room,
                  REAL(nvmlDeviceGetAccountingPids, device, &count, &all->pid));
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                 nvmlAccountingStats_t *stats)
{
    ENTER_NVML(nvmlDeviceGetAccountingStats, device, pid, stats);
    return is_ours(pid) ? REAL(nvmlDeviceGetAccountingStats, device, pid, stats)
                        : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device,
                                                    nvmlAccountingStats_v2_t *stats)
{
    ENTER_NVML(nvmlDeviceGetAccountingStats_v2, device, stats);
    return stats == NULL || is_ours(stats->pid)
               ? REAL(nvmlDeviceGetAccountingStats_v2, device, stats)
               : NVML_ERROR_NOT_FOUND;
}
