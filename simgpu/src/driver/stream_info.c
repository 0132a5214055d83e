/*
 * What streams say about themselves, their attributes, and events of whole contexts.
 */
#include "event_set.h"
#include "stream_set.h"

/* Two entries for one question, which sees `stream` under the lock and fills *answer. */
#define QUESTION(name, type, parameter, expression)                                                \
    static CUresult ask_##name(CUstream handle, type *parameter, enum default_stream null_means)   \
    {                                                                                              \
        struct stream *stream = NULL;                                                              \
        REQUIRE(parameter != NULL);                                                                \
        TRY(stream_lock(handle, null_means, &stream));                                             \
        *parameter = (expression);                                                                 \
        order_unlock();                                                                            \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    ENTRY name(CUstream handle, type *parameter)                                                   \
    {                                                                                              \
        return ask_##name(handle, parameter, DEFAULT_LEGACY);                                      \
    }                                                                                              \
    ENTRY name##_ptsz(CUstream handle, type *parameter)                                            \
    {                                                                                              \
        return ask_##name(handle, parameter, DEFAULT_PER_THREAD);                                  \
    }

QUESTION(cuStreamGetPriority, int, priority, stream->priority)
QUESTION(cuStreamGetFlags, unsigned, flags, stream->flags)
QUESTION(cuStreamGetId, unsigned long long, id, stream->id)
QUESTION(cuStreamGetDevice, CUdevice, device, stream->context->device->ordinal)
QUESTION(cuStreamGetCtx, CUcontext, context, context_handle(stream->context))

/* A green context and the context it stands for are the same thing here. */
static CUresult contexts_of(CUstream handle, enum default_stream null_means, CUcontext *context,
                            CUgreenCtx *green)
{
    struct stream *stream = NULL;
    REQUIRE(context != NULL && green != NULL);
    TRY(stream_lock(handle, null_means, &stream));
    *context = context_handle(stream->context);
    *green = stream->context->is_green ? (CUgreenCtx)(uintptr_t)stream->context : NULL;
    order_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    return contexts_of(handle, DEFAULT_LEGACY, context, green);
}

ENTRY cuStreamGetCtx_v2_ptsz(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    return contexts_of(handle, DEFAULT_PER_THREAD, context, green);
}

ENTRY cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
    CUcontext context = NULL;
    return contexts_of(handle, DEFAULT_LEGACY, &context, green);
}

ENTRY cuStreamGetDevResource(CUstream handle, CUdevResource *resource, CUdevResourceType type)
{
    struct context *context = NULL;
    TRY(stream_context(handle, DEFAULT_LEGACY, &context));
    return cuCtxGetDevResource(context_handle(context), resource, type);
}

ENTRY cuStreamGetDevResource_ptsz(CUstream handle, CUdevResource *resource, CUdevResourceType type)
{
    struct context *context = NULL;
    TRY(stream_context(handle, DEFAULT_PER_THREAD, &context));
    return cuCtxGetDevResource(context_handle(context), resource, type);
}

/* --- attributes ---------------------------------------------------------------------------- */

/* Under the lock. */
static CUresult read_attribute(const struct stream *stream, CUstreamAttrID attribute,
                               CUstreamAttrValue *value)
{
    *value = (CUstreamAttrValue){0};
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value->accessPolicyWindow = stream->attributes.access_policy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = stream->attributes.sync_policy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = stream->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        *value = stream->attributes.domain_map;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        *value = stream->attributes.domain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Under the lock. */
static CUresult write_attribute(struct stream *stream, CUstreamAttrID attribute,
                                const CUstreamAttrValue *value)
{
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        REQUIRE(value->accessPolicyWindow.hitRatio >= 0 && value->accessPolicyWindow.hitRatio <= 1);
        stream->attributes.access_policy = value->accessPolicyWindow;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        REQUIRE(value->syncPolicy >= CU_SYNC_POLICY_AUTO &&
                value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC);
        stream->attributes.sync_policy = value->syncPolicy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        REQUIRE(value->priority >= STREAM_PRIORITY_GREATEST &&
                value->priority <= STREAM_PRIORITY_LEAST);
        stream->priority = value->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        stream->attributes.domain_map = *value;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        stream->attributes.domain = *value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(CUstream handle, enum default_stream null_means,
                              CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    struct stream *stream = NULL;
    REQUIRE(value != NULL);
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = read_attribute(stream, attribute, value);
    order_unlock();
    return result;
}

ENTRY cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    return get_attribute(handle, DEFAULT_LEGACY, attribute, value);
}

ENTRY cuStreamGetAttribute_ptsz(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    return get_attribute(handle, DEFAULT_PER_THREAD, attribute, value);
}

static CUresult set_attribute(CUstream handle, enum default_stream null_means,
                              CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    struct stream *stream = NULL;
    REQUIRE(value != NULL);
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = write_attribute(stream, attribute, value);
    order_unlock();
    return result;
}

ENTRY cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                           const CUstreamAttrValue *value)
{
    return set_attribute(handle, DEFAULT_LEGACY, attribute, value);
}

ENTRY cuStreamSetAttribute_ptsz(CUstream handle, CUstreamAttrID attribute,
                                const CUstreamAttrValue *value)
{
    return set_attribute(handle, DEFAULT_PER_THREAD, attribute, value);
}

static CUresult copy_attributes(CUstream to_handle, CUstream from_handle,
                                enum default_stream null_means)
{
    struct stream *from = NULL;
    struct stream *to = NULL;
    TRY(stream_lock(from_handle, null_means, &from));
    const struct stream_attributes attributes = from->attributes;
    const struct context *context = from->context;
    const int priority = from->priority;
    order_unlock();
    TRY(stream_lock(to_handle, null_means, &to));
    const bool is_same = to->context == context;
    if (is_same) {
        to->attributes = attributes;
        to->priority = priority;
    }
    order_unlock();
    return is_same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuStreamCopyAttributes(CUstream to, CUstream from)
{
    return copy_attributes(to, from, DEFAULT_LEGACY);
}

ENTRY cuStreamCopyAttributes_ptsz(CUstream to, CUstream from)
{
    return copy_attributes(to, from, DEFAULT_PER_THREAD);
}

/* Managed memory is one and the same on host and device, so there is nothing to attach. */
static CUresult attach(CUstream handle, enum default_stream null_means, CUdeviceptr address,
                       unsigned flags)
{
    struct stream *stream = NULL;
    REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
            flags == CU_MEM_ATTACH_SINGLE);
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = stream_refuse_waiting(stream);
    const bool is_virtual = stream->is_legacy && flags == CU_MEM_ATTACH_SINGLE;
    order_unlock();
    TRY(result);
    REQUIRE(!is_virtual && memory_holds(address, 1));
    return CUDA_SUCCESS;
}

ENTRY cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned flags)
{
    (void)length;
    return attach(stream, DEFAULT_LEGACY, address, flags);
}

ENTRY cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t length,
                                  unsigned flags)
{
    (void)length;
    return attach(stream, DEFAULT_PER_THREAD, address, flags);
}
