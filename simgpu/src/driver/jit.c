/*
 * The options of the compiler, and its reports.
 */
#include "jit.h"

#include <stdio.h>
#include <string.h>

CUresult jit_check(unsigned count, const CUjit_option *options, void *const *values)
{
    REQUIRE(count == 0 || (options != NULL && values != NULL));
    for (unsigned i = 0; i < count; i++)
        REQUIRE((unsigned)options[i] < CU_JIT_NUM_OPTIONS);
    return CUDA_SUCCESS;
}

/* A buffer and its size are options of their own; the size is overwritten with what was used. */
static void write_log(unsigned count, const CUjit_option *options, void **values,
                      CUjit_option buffer_option, CUjit_option size_option, const char *text)
{
    char *buffer = NULL;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == buffer_option)
            buffer = values[i];
        else if (options[i] == size_option)
            room = (uintptr_t)values[i] & 0xffffffff; /* an unsigned in the place of a pointer */
    }
    size_t used = 0;
    if (buffer != NULL && room > 0) {
        used = strlen(text) < room ? strlen(text) : room - 1;
        memcpy(buffer, text, used);
        buffer[used] = '\0';
        used = used > 0 ? used + 1 : 0;
    }
    for (unsigned i = 0; i < count; i++)
        if (options[i] == size_option)
            values[i] = (void *)used;
}

void jit_report(unsigned count, const CUjit_option *options, void **values, CUresult result)
{
    char text[128] = "";
    const char *name = NULL;
    if (result != CUDA_SUCCESS && cuGetErrorName(result, &name) == CUDA_SUCCESS)
        snprintf(text, sizeof text, "the simulated driver could not load the code: %s", name);
    write_log(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
              "");
    write_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
              text);
    const float no_time = 0;
    for (unsigned i = 0; i < count; i++)
        if (options[i] == CU_JIT_WALL_TIME)
            memcpy(&values[i], &no_time, sizeof no_time);
}
