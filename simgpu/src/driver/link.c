/*
 * The linker: several pieces of code in, one cubin out.
 *
 * Only declarations matter here, so the cubin is an ELF file with a section of PTX that declares
 * everything the pieces have declared.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "jit.h"

struct link {
    struct image **images;
    size_t image_count;
    unsigned capability;
    void *cubin;
};

static struct table links = TABLE(struct link, 1 << 12);

static CUresult get(CUlinkState handle, struct link **link)
{
    TRY(driver_check());
    *link = (struct link *)(uintptr_t)handle;
    return table_holds(&links, *link) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void links_forget(void)
{
    table_forget(&links);
}

/* --- pieces -------------------------------------------------------------------------------- */

static CUresult add(struct link *link, CUjitInputType type, const void *data, size_t bytes)
{
    struct image *image = NULL;
    if (type == CU_JIT_INPUT_LIBRARY)
        return CUDA_SUCCESS; /* libraries bring device functions, which nobody asks about */
    if (type == CU_JIT_INPUT_NVVM)
        return CUDA_ERROR_NOT_SUPPORTED;
    TRY(image_read(data, bytes, link->capability, &image));
    if (image->is_opaque) {
        image_release(image);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct image **larger = realloc(link->images, (link->image_count + 1) * sizeof image);
    if (larger == NULL) {
        image_release(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link->images = larger;
    link->images[link->image_count++] = image;
    return CUDA_SUCCESS;
}

ENTRY cuLinkCreate_v2(unsigned option_count, CUjit_option *options, void **values,
                      CUlinkState *handle)
{
    ENTER(context);
    REQUIRE(handle != NULL);
    TRY(jit_check(option_count, options, values));
    struct link *link = table_take(&links);
    if (link == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct sim_profile *profile = context->device->profile;
    link->capability = profile->compute_major * 10 + profile->compute_minor;
    *handle = (CUlinkState)(uintptr_t)link;
    return CUDA_SUCCESS;
}
TWIN(cuLinkCreate, cuLinkCreate_v2);

ENTRY cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
                       const char *name, unsigned option_count, CUjit_option *options,
                       void **values)
{
    struct link *link = NULL;
    (void)name;
    TRY(get(handle, &link));
    REQUIRE(data != NULL && bytes > 0 && (unsigned)type < CU_JIT_NUM_INPUT_TYPES);
    TRY(jit_check(option_count, options, values));
    return add(link, type, data, bytes);
}
TWIN(cuLinkAddData, cuLinkAddData_v2);

ENTRY cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path,
                       unsigned option_count, CUjit_option *options, void **values)
{
    struct link *link = NULL;
    void *data = NULL;
    size_t bytes = 0;
    TRY(get(handle, &link));
    REQUIRE(path != NULL && (unsigned)type < CU_JIT_NUM_INPUT_TYPES);
    TRY(jit_check(option_count, options, values));
    TRY(image_load_file(path, &data, &bytes));
    const CUresult result = bytes > 0 ? add(link, type, data, bytes) : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    return result;
}
TWIN(cuLinkAddFile, cuLinkAddFile_v2);

/* --- the result ---------------------------------------------------------------------------- */

static void declare_function(FILE *text, const struct image_function *function)
{
    fprintf(text, ".visible .entry %s(\n", function->name);
    for (size_t i = 0; i < function->parameter_count; i++) {
        const struct image_parameter *parameter = &function->parameters[i];
        /* The largest alignment that puts it where it was. */
        const size_t align = parameter->offset == 0 ? 16 : parameter->offset & -parameter->offset;
        fprintf(text, "%s.param .align %zu .b8 p%zu[%zu]", i > 0 ? ",\n" : "",
                align < 16 ? align : 16, i, parameter->bytes);
    }
    fprintf(text, ")\n");
    if (function->max_threads != 0)
        fprintf(text, ".maxntid %u, 1, 1\n", function->max_threads);
    if (function->registers != 0)
        fprintf(text, ".maxnreg %u\n", function->registers);
    if (function->cluster[0] != 0)
        fprintf(text, ".reqnctapercluster %u, %u, %u\n", function->cluster[0], function->cluster[1],
                function->cluster[2]);
    fprintf(text, "{\n");
    if (function->shared_bytes != 0)
        fprintf(text, ".shared .b8 s[%u];\n", function->shared_bytes);
    if (function->local_bytes != 0)
        fprintf(text, ".local .b8 l[%u];\n", function->local_bytes);
    fprintf(text, "}\n");
}

static void declare_global(FILE *text, const struct image_global *global)
{
    fprintf(text, ".visible %s %s.b8 %s[%zu]", global->is_constant ? ".const" : ".global",
            global->is_managed ? ".attribute(.managed) " : "", global->name, global->bytes);
    for (size_t i = 0; i < global->initial_bytes; i++)
        fprintf(text, "%s%u", i == 0 ? " = {" : ",", global->initial[i]);
    fprintf(text, global->initial_bytes > 0 ? "};\n" : ";\n");
}

static char *declare_all(const struct link *link, size_t *bytes)
{
    char *declared = NULL;
    FILE *text = open_memstream(&declared, bytes);
    if (text == NULL)
        return NULL;
    fprintf(text, ".version 8.0\n.target sm_%u\n.address_size 64\n", link->capability);
    for (size_t i = 0; i < link->image_count; i++) {
        const struct image *image = link->images[i];
        for (size_t k = 0; k < image->global_count; k++)
            declare_global(text, &image->globals[k]);
        for (size_t k = 0; k < image->function_count; k++)
            declare_function(text, &image->functions[k]);
    }
    return fclose(text) == 0 ? declared : NULL;
}

/* An ELF file of a header, the names of its sections, the text, and the table of sections. */
static void *wrap(const struct link *link, const char *text, size_t text_bytes, size_t *bytes)
{
    static const char names[] = "\0.shstrtab\0" LINKED_PTX_SECTION;
    const size_t text_at = sizeof(Elf64_Ehdr) + sizeof names;
    const size_t table_at = (text_at + text_bytes + 7) & ~(size_t)7;
    const Elf64_Shdr sections[3] = {
        {.sh_type = SHT_NULL},
        {.sh_name = 1,
         .sh_type = SHT_STRTAB,
         .sh_offset = sizeof(Elf64_Ehdr),
         .sh_size = sizeof names},
        {.sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = text_at, .sh_size = text_bytes},
    };
    const Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41,
                    8},
        .e_type = ET_EXEC,
        .e_machine = 190,
        .e_version = EV_CURRENT,
        .e_shoff = table_at,
        .e_flags = link->capability << 8,
        .e_ehsize = sizeof header,
        .e_shentsize = sizeof sections[0],
        .e_shnum = 3,
        .e_shstrndx = 1,
    };
    *bytes = table_at + sizeof sections;
    char *file = calloc(1, *bytes);
    if (file == NULL)
        return NULL;
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, names, sizeof names);
    memcpy(file + text_at, text, text_bytes);
    memcpy(file + table_at, sections, sizeof sections);
    return file;
}

ENTRY cuLinkComplete(CUlinkState handle, void **cubin, size_t *bytes)
{
    struct link *link = NULL;
    size_t text_bytes = 0;
    size_t file_bytes = 0;
    TRY(get(handle, &link));
    REQUIRE(cubin != NULL);
    char *text = declare_all(link, &text_bytes);
    if (text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    free(link->cubin);
    link->cubin = wrap(link, text, text_bytes, &file_bytes);
    free(text);
    if (link->cubin == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *cubin = link->cubin;
    if (bytes != NULL)
        *bytes = file_bytes;
    return CUDA_SUCCESS;
}

ENTRY cuLinkDestroy(CUlinkState handle)
{
    struct link *link = NULL;
    TRY(get(handle, &link));
    for (size_t i = 0; i < link->image_count; i++)
        image_release(link->images[i]);
    free(link->images);
    free(link->cubin);
    table_give(&links, link);
    return CUDA_SUCCESS;
}
