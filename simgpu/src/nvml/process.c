/* Which processes use a device, and how much of its memory each of them holds. */
#include "process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hostpid.h"

unsigned list_processes(const struct gpu *gpu, struct process found[SIM_PROCESSES])
{
    unsigned pids[SIM_PROCESSES];
    unsigned count = 0;

    find_host_pids(gpu->node, pids);
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        const struct sim_usage *usage = &gpu->node->processes[slot].usages[gpu->index];
        uint64_t used_bytes = __atomic_load_n(&usage->used_bytes, __ATOMIC_RELAXED);
        if (pids[slot] && used_bytes)
            found[count++] = (struct process){slot, pids[slot], used_bytes};
    }
    return count;
}

/*
 * The rule for all lists: *count says how many fit and is set to how many there are; too few is an
 * error, unless there are none.
 */
static nvmlReturn_t check_room(unsigned int *room, unsigned count, bool buffer)
{
    bool fits = count <= *room && (buffer || count == 0);
    *room = count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

ENTRY nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *room,
                                              nvmlProcessInfo_t *infos)
{
    struct gpu gpu;
    struct process found[SIM_PROCESSES];

    TRY(open_live_gpu(&gpu, handle, room && (infos || *room == 0)));
    unsigned count = list_processes(&gpu, found);
    TRY(check_room(room, count, infos));
    for (unsigned number = 0; number < count; number++)
        infos[number] = (nvmlProcessInfo_t){
            .pid = found[number].pid,
            .usedGpuMemory = found[number].used_bytes,
            .gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_ID,
            .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_ID,
        };
    return NVML_SUCCESS;
}
TWIN(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3);

ENTRY nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned int *room,
                                           nvmlProcessInfo_v1_t *infos)
{
    struct gpu gpu;
    struct process found[SIM_PROCESSES];

    TRY(open_live_gpu(&gpu, handle, room && (infos || *room == 0)));
    unsigned count = list_processes(&gpu, found);
    TRY(check_room(room, count, infos));
    for (unsigned number = 0; number < count; number++)
        infos[number] = (nvmlProcessInfo_v1_t){.pid = found[number].pid,
                                               .usedGpuMemory = found[number].used_bytes};
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle, nvmlProcessDetailList_t *list)
{
    struct gpu gpu;
    struct process found[SIM_PROCESSES];
    unsigned count = 0;

    TRY(open_live_gpu(&gpu, handle, list));
    REQUIRE_VERSION(list, nvmlProcessDetailList_v1_t, 1);
    REQUIRE(list->mode <= NVML_PROCESS_MODE_ALL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu.profile->architecture >= NVML_DEVICE_ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    if (list->mode == NVML_PROCESS_MODE_COMPUTE || list->mode == NVML_PROCESS_MODE_ALL)
        count = list_processes(&gpu, found);
    TRY(check_room(&list->numProcArrayEntries, count, list->procArray));
    for (unsigned number = 0; number < count; number++)
        list->procArray[number] = (nvmlProcessDetail_v1_t){
            .pid = found[number].pid,
            .usedGpuMemory = found[number].used_bytes,
            .gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_ID,
            .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_ID,
        };
    return NVML_SUCCESS;
}

/* --- graphics and MPS: nobody -------------------------------------------------------------- */

static nvmlReturn_t answer_nobody(nvmlDevice_t handle, unsigned int *count)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, count));
    *count = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count,
                                               nvmlProcessInfo_t *infos)
{
    (void)infos;
    return answer_nobody(handle, count);
}
TWIN(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3);
TWIN(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3);
TWIN(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3);

ENTRY nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned int *count,
                                            nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return answer_nobody(handle, count);
}
TWIN(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses);

/* --- names --------------------------------------------------------------------------------- */

/* As documented, a long name is cropped. */
ENTRY nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    const struct sim_state *node;
    unsigned pids[SIM_PROCESSES];
    char path[64], text[4096];

    TRY(open_system(&node, name && length));
    find_host_pids(node, pids);
    for (unsigned slot = 0; slot < SIM_PROCESSES; slot++) {
        if (pid && pids[slot] == pid) {
            snprintf(name, length, "%s", node->processes[slot].name);
            return NVML_SUCCESS;
        }
    }
    snprintf(path, sizeof(path), "/proc/%u/exe", pid);
    ssize_t bytes = readlink(path, text, sizeof(text) - 1);
    REQUIRE(bytes > 0, NVML_ERROR_NOT_FOUND);
    snprintf(name, length, "%.*s", (int)bytes, text);
    return NVML_SUCCESS;
}
