/* Which CPUs and which NUMA node are nearest to a device. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"

enum { WORD_BITS = 8 * sizeof(unsigned long) };

/* Adds the CPUs of a list like "0-3,8-11". */
static void add_list(const char *text, cpu_set_t *cpus)
{
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10);
        if (end == text)
            return; /* a node without CPUs */
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_SET(cpu, cpus);
        text = *end == ',' ? end + 1 : "";
    }
}

/*
 * The machine under the simulation may have fewer NUMA nodes than the simulated one: then all its
 * CPUs are equally near.
 */
static void near_cpus(const struct sim_profile *profile, cpu_set_t *cpus)
{
    char path[96], text[4096] = "";

    CPU_ZERO(cpus);
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", profile->numa_node);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(text, sizeof(text), file))
            add_list(text, cpus);
        fclose(file);
    }
    if (CPU_COUNT(cpus) > 0)
        return;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < online && cpu < CPU_SETSIZE; cpu++)
        CPU_SET((size_t)cpu, cpus);
}

ENTRY nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned int words,
                                          unsigned long *set, nvmlAffinityScope_t scope)
{
    struct gpu gpu;
    cpu_set_t cpus;

    TRY(open_gpu(&gpu, handle, set && words > 0 && scope <= NVML_AFFINITY_SCOPE_SOCKET));
    near_cpus(gpu.profile, &cpus);
    memset(set, 0, words * sizeof(*set));
    for (size_t cpu = 0; cpu < CPU_SETSIZE && cpu / WORD_BITS < words; cpu++) {
        if (CPU_ISSET(cpu, &cpus))
            set[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
    }
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned int words, unsigned long *set)
{
    return nvmlDeviceGetCpuAffinityWithinScope(handle, words, set, NVML_AFFINITY_SCOPE_NODE);
}

/* A node of -1 is that of a machine without NUMA: everything is on node 0. */
ENTRY nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned int words, unsigned long *set,
                                  nvmlAffinityScope_t scope)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, set && words > 0 && scope <= NVML_AFFINITY_SCOPE_SOCKET));
    unsigned node = gpu.profile->numa_node > 0 ? (unsigned)gpu.profile->numa_node : 0;
    memset(set, 0, words * sizeof(*set));
    if (node / WORD_BITS < words)
        set[node / WORD_BITS] = 1ul << node % WORD_BITS;
    return NVML_SUCCESS;
}

static nvmlReturn_t bind_thread(const cpu_set_t *cpus)
{
    return sched_setaffinity(0, sizeof(*cpus), cpus) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

ENTRY nvmlDeviceSetCpuAffinity(nvmlDevice_t handle)
{
    struct gpu gpu;
    cpu_set_t cpus;
    TRY(open_gpu(&gpu, handle, true));
    near_cpus(gpu.profile, &cpus);
    return bind_thread(&cpus);
}

ENTRY nvmlDeviceClearCpuAffinity(nvmlDevice_t handle)
{
    struct gpu gpu;
    cpu_set_t cpus;
    TRY(open_gpu(&gpu, handle, true));
    memset(&cpus, 0xff, sizeof(cpus));
    return bind_thread(&cpus);
}

ENTRY nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *room, nvmlDevice_t *handles)
{
    const struct sim_state *node;
    cpu_set_t cpus;
    unsigned count = 0;

    TRY(open_system(&node, room && (handles || *room == 0) && cpu < CPU_SETSIZE));
    for (unsigned index = 0; index < node->device_count; index++) {
        near_cpus(&node->devices[index].profile, &cpus);
        if (!CPU_ISSET(cpu, &cpus))
            continue;
        if (count < *room)
            handles[count] = handle_of(index);
        count++;
    }
    if (*room == 0 || count < *room)
        *room = count;
    return NVML_SUCCESS;
}
