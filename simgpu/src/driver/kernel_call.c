/*
 * Launches that are kept: the arguments are copied when the program hands them over.
 */
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* A buffer with all arguments, as `extra` describes it. */
static CUresult find_buffer(void **extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL)
            memcpy(bytes, extra[i + 1], sizeof *bytes);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return *buffer != NULL || *bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult arguments_check(const struct function *function, void **pointers, void **extra)
{
    const struct image_function *code = function->code;
    REQUIRE(pointers == NULL || extra == NULL);
    if (LIKELY(pointers != NULL || code->parameter_count == 0))
        return CUDA_SUCCESS;
    REQUIRE(extra != NULL);
    const void *buffer = NULL;
    size_t bytes = 0;
    TRY(find_buffer(extra, &buffer, &bytes));
    REQUIRE(bytes >= code->parameter_bytes);
    return CUDA_SUCCESS;
}

void kernel_call_clear(struct kernel_call *call)
{
    free(call->arguments);
    free(call->pointers);
    free(call->attributes);
    *call = (struct kernel_call){0};
}

/* Memory for the arguments, and pointers to them where they were given one by one. */
static CUresult make_room(struct kernel_call *call, size_t bytes, size_t pointer_count)
{
    call->argument_bytes = bytes;
    call->arguments = calloc(1, bytes > 0 ? bytes : 1);
    call->pointers = pointer_count > 0 ? calloc(pointer_count, sizeof(void *)) : NULL;
    if (call->arguments == NULL || (pointer_count > 0 && call->pointers == NULL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* `extra` as the program reads it back. */
static void describe_buffer(struct kernel_call *call)
{
    call->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    call->extra[1] = call->arguments;
    call->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    call->extra[3] = &call->argument_bytes;
    call->extra[4] = CU_LAUNCH_PARAM_END;
}

static CUresult take_arguments(struct kernel_call *call, void **pointers, void **extra)
{
    const struct image_function *code = call->function->code;
    if (pointers == NULL && extra != NULL) {
        const void *buffer = NULL;
        size_t bytes = 0;
        TRY(find_buffer(extra, &buffer, &bytes));
        TRY(make_room(call, bytes, 0));
        if (bytes > 0)
            memcpy(call->arguments, buffer, bytes);
        return CUDA_SUCCESS;
    }
    TRY(make_room(call, code->parameter_bytes, code->parameter_count));
    for (size_t i = 0; i < code->parameter_count; i++) {
        call->pointers[i] = call->arguments + code->parameters[i].offset;
        REQUIRE(pointers != NULL && pointers[i] != NULL);
        memcpy(call->pointers[i], pointers[i], code->parameters[i].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult kernel_call_make(struct function *function, const struct shape *shape, void **pointers,
                          void **extra, struct kernel_call *call)
{
    TRY(launch_check(function, shape));
    TRY(arguments_check(function, pointers, extra));
    *call = (struct kernel_call){
        .function = function,
        .serial = function->serial,
        .shape = *shape,
        .duration_ns = launch_duration_ns(function, shape, pointers, extra),
    };
    const CUresult result = take_arguments(call, pointers, extra);
    if (result != CUDA_SUCCESS)
        kernel_call_clear(call);
    return result;
}

CUresult kernel_call_copy(struct kernel_call *to, const struct kernel_call *from)
{
    *to = *from;
    to->arguments = NULL;
    to->pointers = NULL;
    to->attributes = NULL;
    to->attribute_count = 0;
    const size_t pointer_count = from->pointers != NULL ? from->function->code->parameter_count : 0;
    CUresult result = make_room(to, from->argument_bytes, pointer_count);
    if (result == CUDA_SUCCESS && from->argument_bytes > 0)
        memcpy(to->arguments, from->arguments, from->argument_bytes);
    for (size_t i = 0; result == CUDA_SUCCESS && i < pointer_count; i++)
        to->pointers[i] = to->arguments + ((uint8_t *)from->pointers[i] - from->arguments);
    for (size_t i = 0; result == CUDA_SUCCESS && i < from->attribute_count; i++)
        result = kernel_call_set_attribute(to, &from->attributes[i]);
    if (result != CUDA_SUCCESS)
        kernel_call_clear(to);
    return result;
}

CUresult kernel_call_set_attribute(struct kernel_call *call, const CUlaunchAttribute *attribute)
{
    for (size_t i = 0; i < call->attribute_count; i++) {
        if (call->attributes[i].id == attribute->id) {
            call->attributes[i] = *attribute;
            return CUDA_SUCCESS;
        }
    }
    CUlaunchAttribute *larger =
        realloc(call->attributes, (call->attribute_count + 1) * sizeof *larger);
    if (larger == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->attributes = larger;
    call->attributes[call->attribute_count++] = *attribute;
    return CUDA_SUCCESS;
}

void kernel_call_show(struct kernel_call *call, void ***pointers, void ***extra)
{
    const bool by_buffer = call->pointers == NULL && call->argument_bytes > 0;
    if (by_buffer)
        describe_buffer(call);
    *pointers = call->pointers;
    *extra = by_buffer ? call->extra : NULL;
}
