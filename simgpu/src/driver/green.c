/*
 * Green contexts: parts of a device by SM count.
 *
 * The parts are counted and answered back; work in a green context takes the time it would take on
 * the whole device.
 */
#include <string.h>

#include "context.h"

/* What a CUdevResourceDesc stands for. */
struct resource_description {
    CUdevice device;
    unsigned sm_count;
};

/* An SM resource says in its padding which device it is of: no SM is given to two devices. */
struct sm_origin {
    char magic[8];
    CUdevice device;
};

static const char origin_magic[8] = "ALQSMRS";

static struct table descriptions = TABLE(struct resource_description, 1 << 12);

void greens_forget(void)
{
    table_forget(&descriptions);
}

/* SMs come in twos below Hopper and in eights since. */
static unsigned sm_step(const struct device *device)
{
    return device->profile->compute_major >= 9 ? 8 : 2;
}

static void describe_sms(const struct device *device, unsigned sm_count, CUdevResource *resource)
{
    struct sm_origin origin = {.device = device->ordinal};
    memcpy(origin.magic, origin_magic, sizeof origin.magic);
    memset(resource, 0, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = sm_count;
    resource->sm.minSmPartitionSize = sm_step(device);
    resource->sm.smCoscheduledAlignment = sm_step(device);
    memcpy(resource->_internal_padding, &origin, sizeof origin);
}

static CUresult answer(const struct device *device, unsigned sm_count, CUdevResource *resource,
                       CUdevResourceType type)
{
    REQUIRE(resource != NULL);
    if (type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG || type == CU_DEV_RESOURCE_TYPE_WORKQUEUE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    describe_sms(device, sm_count, resource);
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    return answer(device, device->profile->sm_count, resource, type);
}

ENTRY cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type)
{
    struct context *context = NULL;
    TRY(handle != NULL ? context_get(handle, &context) : context_enter(&context));
    return answer(context->device, context->sm_count, resource, type);
}

ENTRY cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type)
{
    struct context *context = NULL;
    TRY(context_of_green(handle, &context));
    return answer(context->device, context->sm_count, resource, type);
}

static CUresult device_of(const CUdevResource *resource, struct device **device)
{
    struct sm_origin origin;
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(&origin, resource->_internal_padding, sizeof origin);
    REQUIRE(memcmp(origin.magic, origin_magic, sizeof origin.magic) == 0);
    return device_get(origin.device, device);
}

/* Groups of at least so many SMs each, as many as were asked for and fit. */
ENTRY cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *group_count,
                                  const CUdevResource *input, CUdevResource *remainder,
                                  unsigned flags, unsigned least)
{
    struct device *device = NULL;
    const unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                           CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    TRY(driver_check());
    REQUIRE(group_count != NULL && input != NULL && (flags & ~known) == 0);
    TRY(device_of(input, &device));
    const unsigned step =
        (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0 ? 2 : sm_step(device);
    REQUIRE(least <= input->sm.smCount);
    const unsigned wanted = least > 0 ? least : 1;
    const unsigned size = (wanted + step - 1) / step * step;
    const unsigned most = input->sm.smCount / size;
    if (most == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned count = most;
    if (groups != NULL) {
        REQUIRE(*group_count > 0);
        count = *group_count < most ? *group_count : most;
        for (unsigned number = 0; number < count; number++)
            describe_sms(device, size, &groups[number]);
        if (remainder != NULL)
            describe_sms(device, input->sm.smCount - count * size, remainder);
    }
    *group_count = count;
    return CUDA_SUCCESS;
}

/* Groups of given sizes; one that asks for none takes what is left. */
ENTRY cuDevSmResourceSplit(CUdevResource *groups, unsigned group_count, const CUdevResource *input,
                           CUdevResource *remainder, unsigned flags,
                           CU_DEV_SM_RESOURCE_GROUP_PARAMS *parameters)
{
    struct device *device = NULL;
    TRY(driver_check());
    REQUIRE(input != NULL && parameters != NULL && group_count > 0 && flags == 0);
    TRY(device_of(input, &device));
    unsigned left = input->sm.smCount;
    for (unsigned number = 0; number < group_count; number++) {
        CU_DEV_SM_RESOURCE_GROUP_PARAMS *group = &parameters[number];
        if (group->smCount == 0)
            group->smCount = left / sm_step(device) * sm_step(device);
        if (group->smCount == 0 || group->smCount > left || group->smCount % 2 != 0)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        left -= group->smCount;
        if (groups != NULL)
            describe_sms(device, group->smCount, &groups[number]);
    }
    if (remainder != NULL)
        describe_sms(device, left, remainder);
    return CUDA_SUCCESS;
}

/* --- green contexts ------------------------------------------------------------------------ */

ENTRY cuDevResourceGenerateDesc(CUdevResourceDesc *handle, CUdevResource *resources, unsigned count)
{
    struct device *device = NULL;
    unsigned sm_count = 0;
    TRY(driver_check());
    REQUIRE(handle != NULL && resources != NULL && count > 0);
    for (unsigned number = 0; number < count; number++) {
        struct device *each = NULL;
        TRY(device_of(&resources[number], &each));
        if (device != NULL && each != device)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        device = each;
        sm_count += resources[number].sm.smCount;
    }
    if (sm_count == 0 || sm_count > device->profile->sm_count)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    struct resource_description *description = table_take(&descriptions);
    if (description == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *description = (struct resource_description){device->ordinal, sm_count};
    *handle = (CUdevResourceDesc)(uintptr_t)description;
    return CUDA_SUCCESS;
}

ENTRY cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc resources, CUdevice ordinal,
                       unsigned flags)
{
    struct device *device = NULL;
    struct context *context = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(handle != NULL && (flags & ~(unsigned)CU_GREEN_CTX_DEFAULT_STREAM) == 0);
    REQUIRE(flags == CU_GREEN_CTX_DEFAULT_STREAM);
    const struct resource_description *description = (const struct resource_description *)resources;
    REQUIRE(table_holds(&descriptions, description) && description->device == ordinal);
    TRY(context_create_green(device, description->sm_count, &context));
    *handle = (CUgreenCtx)(uintptr_t)context;
    return CUDA_SUCCESS;
}

ENTRY cuGreenCtxDestroy(CUgreenCtx handle)
{
    struct context *context = NULL;
    TRY(context_of_green(handle, &context));
    struct device *device = context->device;
    if (thread.current == context)
        stack_pop();
    context_destroy(context);
    return primary_release(device);
}

ENTRY cuCtxFromGreenCtx(CUcontext *handle, CUgreenCtx green)
{
    struct context *context = NULL;
    TRY(context_of_green(green, &context));
    REQUIRE(handle != NULL);
    *handle = context_handle(context);
    return CUDA_SUCCESS;
}

ENTRY cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
    struct context *context = NULL;
    TRY(context_of_green(handle, &context));
    REQUIRE(id != NULL);
    *id = context->id;
    return CUDA_SUCCESS;
}
