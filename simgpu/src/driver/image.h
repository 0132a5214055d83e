/*
 * Code as programs hand it over: PTX text, cubins (ELF), fat binaries that contain both.
 *
 * Kernels are not computed, so an image is read only for what the driver API tells about it: names,
 * parameters, limits of functions, and global variables with their initial contents.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_exec_abi.h"

struct image_parameter {
    size_t offset;
    size_t bytes;
};

struct image_function {
    char *name;
    struct image_parameter *parameters;
    size_t parameter_count;
    size_t parameter_bytes;  /* up to the end of the last one */
    unsigned max_threads;    /* per block; 0: as many as the device allows */
    unsigned registers;      /* per thread; 0: not known */
    unsigned shared_bytes;   /* static */
    unsigned local_bytes;    /* per thread */
    unsigned cluster[3];     /* required cluster shape; 0: none */
    bool parameters_unknown; /* launches take whatever they are given */
};

struct image_global {
    char *name;
    size_t bytes;
    size_t offset;    /* in the module's data */
    uint8_t *initial; /* NULL: zeros */
    size_t initial_bytes;
    bool is_managed;
    bool is_constant;
};

struct image {
    unsigned references;
    struct image_function *functions;
    size_t function_count;
    struct image_global *globals;
    size_t global_count;
    size_t data_bytes;     /* what all globals need */
    size_t constant_bytes; /* of them in constant memory */
    unsigned target;       /* 80 for sm_80 */
    unsigned ptx_version;  /* 83 for 8.3; 0: there was no PTX */
    bool is_opaque;        /* could be packed in a way not read here: any name may be in it */
};

/*
 * Reads an image. `bytes` is 0 when only the image itself tells its size, as in cuModuleLoadData.
 * `capability` is the device's, 80 for 8.0: of several images the best one that it can run.
 */
CUresult image_read(const void *data, size_t bytes, unsigned capability, struct image **image);

/* The contents of a file, with a zero byte behind them; freed by the caller. */
CUresult image_load_file(const char *path, void **data, size_t *bytes);

void image_hold(struct image *image);
void image_release(struct image *image);

const struct image_function *image_find_function(const struct image *image, const char *name);
const struct image_global *image_find_global(const struct image *image, const char *name);

/* --- for the readers of the single formats ------------------------------------------------- */

/* A new function or global at the end of the image, zeroed but for its name; NULL: no memory. */
struct image_function *image_add_function(struct image *image, const char *name, size_t length);
struct image_global *image_add_global(struct image *image, const char *name, size_t length);

/* Parameters come in any order. */
bool image_add_parameter(struct image_function *function, size_t index, size_t offset,
                         size_t bytes);

/* Where our own linker (link.c) keeps the PTX that it was given. */
#define LINKED_PTX_SECTION ".aliquot.ptx"

bool image_is_elf(const void *data);
bool image_is_fatbin(const void *data);
size_t image_elf_bytes(const void *data);

/* The text must end with a zero byte at `bytes` or before; image_read_text takes any text. */
CUresult image_read_ptx(const char *text, size_t bytes, struct image *image);
CUresult image_read_text(const char *text, size_t bytes, struct image *image);
CUresult image_read_elf(const uint8_t *data, size_t bytes, struct image *image);
CUresult image_read_fatbin(const uint8_t *data, size_t bytes, unsigned capability,
                           struct image *image);
