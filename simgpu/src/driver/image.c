/*
 * Images: telling the formats apart, and what was read from them.
 */
#define _GNU_SOURCE
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* --- building ------------------------------------------------------------------------------ */

/* The array with room for one more element, which is zeroed; capacities are powers of two. */
static void *grown(void *array, size_t count, size_t element_bytes)
{
    if ((count & (count - 1)) == 0) {
        const size_t capacity = count == 0 ? 1 : count * 2;
        array = realloc(array, capacity * element_bytes);
    }
    if (array != NULL)
        memset((char *)array + count * element_bytes, 0, element_bytes);
    return array;
}

struct image_function *image_add_function(struct image *image, const char *name, size_t length)
{
    void *larger = grown(image->functions, image->function_count, sizeof image->functions[0]);
    if (larger == NULL)
        return NULL;
    image->functions = larger;
    struct image_function *function = &image->functions[image->function_count];
    function->name = strndup(name, length);
    if (function->name == NULL)
        return NULL;
    image->function_count++;
    return function;
}

struct image_global *image_add_global(struct image *image, const char *name, size_t length)
{
    void *larger = grown(image->globals, image->global_count, sizeof image->globals[0]);
    if (larger == NULL)
        return NULL;
    image->globals = larger;
    struct image_global *global = &image->globals[image->global_count];
    global->name = strndup(name, length);
    if (global->name == NULL)
        return NULL;
    image->global_count++;
    return global;
}

bool image_add_parameter(struct image_function *function, size_t index, size_t offset, size_t bytes)
{
    while (function->parameter_count <= index) {
        void *larger =
            grown(function->parameters, function->parameter_count, sizeof function->parameters[0]);
        if (larger == NULL)
            return false;
        function->parameters = larger;
        function->parameter_count++;
    }
    function->parameters[index] = (struct image_parameter){.offset = offset, .bytes = bytes};
    if (offset + bytes > function->parameter_bytes)
        function->parameter_bytes = offset + bytes;
    return true;
}

/* --- reading ------------------------------------------------------------------------------- */

/* Text begins with a directive or a comment and has nothing in it that text has not. */
static bool is_ptx(const char *text, size_t bytes)
{
    size_t start = 0;
    while (start < bytes && strchr(" \t\r\n", text[start]) != NULL && text[start] != '\0')
        start++;
    return start < bytes && (text[start] == '.' || text[start] == '/');
}

CUresult image_read_text(const char *text, size_t bytes, struct image *image)
{
    char *copy = strndup(text, bytes);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = image_read_ptx(copy, strlen(copy), image);
    free(copy);
    return result;
}

static CUresult read_any(const void *data, size_t bytes, unsigned capability, struct image *image)
{
    if ((bytes == 0 || bytes >= 64) && image_is_elf(data)) {
        const size_t whole = image_elf_bytes(data);
        if (whole == 0 || (bytes != 0 && bytes < whole))
            return CUDA_ERROR_INVALID_IMAGE;
        return image_read_elf(data, whole, image);
    }
    if ((bytes == 0 || bytes >= 16) && image_is_fatbin(data))
        return image_read_fatbin(data, bytes, capability, image);
    const size_t length = bytes == 0 ? strlen(data) : strnlen(data, bytes);
    if (!is_ptx(data, length))
        return CUDA_ERROR_INVALID_IMAGE;
    return bytes == 0 ? image_read_ptx(data, length, image) : image_read_text(data, length, image);
}

/* Each global at a multiple of what any of them could want. */
static void lay_out(struct image *image)
{
    for (size_t i = 0; i < image->global_count; i++) {
        image->globals[i].offset = image->data_bytes;
        image->data_bytes += (image->globals[i].bytes + 255) & ~(size_t)255;
        if (image->globals[i].is_constant)
            image->constant_bytes += image->globals[i].bytes;
    }
}

CUresult image_read(const void *data, size_t bytes, unsigned capability, struct image **image)
{
    struct image *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->references = 1;
    const CUresult result = read_any(data, bytes, capability, fresh);
    if (result != CUDA_SUCCESS) {
        image_release(fresh);
        return result;
    }
    lay_out(fresh);
    *image = fresh;
    return CUDA_SUCCESS;
}

CUresult image_load_file(const char *path, void **data, size_t *bytes)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = CUDA_ERROR_OPERATING_SYSTEM;
    char *content = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        rewind(file);
        content = size >= 0 ? malloc((size_t)size + 1) : NULL;
        if (content != NULL && fread(content, 1, (size_t)size, file) == (size_t)size) {
            content[size] = '\0';
            *bytes = (size_t)size;
            *data = content;
            result = CUDA_SUCCESS;
        }
    }
    if (result != CUDA_SUCCESS)
        free(content);
    fclose(file);
    return result;
}

/* --- using --------------------------------------------------------------------------------- */

void image_hold(struct image *image)
{
    __atomic_add_fetch(&image->references, 1, __ATOMIC_RELAXED);
}

void image_release(struct image *image)
{
    if (image == NULL || __atomic_sub_fetch(&image->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < image->function_count; i++) {
        free(image->functions[i].name);
        free(image->functions[i].parameters);
    }
    for (size_t i = 0; i < image->global_count; i++) {
        free(image->globals[i].name);
        free(image->globals[i].initial);
    }
    free(image->functions);
    free(image->globals);
    free(image);
}

const struct image_function *image_find_function(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->function_count; i++)
        if (strcmp(image->functions[i].name, name) == 0)
            return &image->functions[i];
    return NULL;
}

const struct image_global *image_find_global(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->global_count; i++)
        if (strcmp(image->globals[i].name, name) == 0)
            return &image->globals[i];
    return NULL;
}
