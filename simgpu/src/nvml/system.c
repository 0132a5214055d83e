/* What is true of the whole machine: versions, and what it does not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

ENTRY nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    const struct sim_state *node;
    TRY(open_system(&node, version));
    return answer_text(version, length, node->driver_version);
}

/* NVML's own version is that of the driver behind CUDA's major one. */
ENTRY nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    const struct sim_state *node;
    char text[sizeof(node->driver_version) + 16];
    TRY(open_system(&node, version));
    snprintf(text, sizeof(text), "%u.%s", node->cuda_version / 1000, node->driver_version);
    return answer_text(version, length, text);
}

ENTRY nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    const struct sim_state *node;
    TRY(open_system(&node, version));
    *version = (int)node->cuda_version;
    return NVML_SUCCESS;
}
TWIN(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

ENTRY nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned int length)
{
    const struct sim_state *node;
    char text[sizeof(info->branch)];
    TRY(open_system(&node, info));
    REQUIRE_VERSION(info, nvmlSystemDriverBranchInfo_v1_t, 1);
    snprintf(text, sizeof(text), "r%lu_00", strtoul(node->driver_version, NULL, 10));
    if (length > sizeof(info->branch))
        length = sizeof(info->branch);
    return answer_text(info->branch, length, text);
}

static nvmlReturn_t answer_none(unsigned int *count)
{
    const struct sim_state *node;
    TRY(open_system(&node, count));
    *count = 0;
    return NVML_SUCCESS;
}

ENTRY nvmlUnitGetCount(unsigned int *count)
{
    return answer_none(count);
}

ENTRY nvmlGetExcludedDeviceCount(unsigned int *count)
{
    return answer_none(count);
}

ENTRY nvmlSystemGetHicVersion(unsigned int *count, nvmlHwbcEntry_t *entries)
{
    (void)entries;
    return answer_none(count);
}

/* Confidential computing is switched off. */
ENTRY nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
    const struct sim_state *node;
    TRY(open_system(&node, state));
    memset(state, 0, sizeof(*state));
    return NVML_SUCCESS;
}

ENTRY nvmlSystemGetConfComputeCapabilities(nvmlConfComputeSystemCaps_t *capabilities)
{
    const struct sim_state *node;
    TRY(open_system(&node, capabilities));
    memset(capabilities, 0, sizeof(*capabilities));
    return NVML_SUCCESS;
}

ENTRY nvmlSystemGetConfComputeGpusReadyState(unsigned int *accepting)
{
    return answer_none(accepting);
}
