/*
 * Reading cubins: ELF files with a function's attributes in a section of its own.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

enum {
    MACHINE_CUDA = 190,
    SYMBOL_IS_ENTRY = 0x10, /* in st_other: a kernel, not a device function */
    SYMBOL_IS_MANAGED = 0x04,
    RESERVED_SHARED_BYTES = 1024,
};

/* Attributes are a format, a number, and a value or the size of one. */
enum {
    FORMAT_SIZED = 4,
    ATTRIBUTE_MAX_THREADS = 0x05,
    ATTRIBUTE_REQUIRED_THREADS = 0x10,
    ATTRIBUTE_FRAME_SIZE = 0x11,
    ATTRIBUTE_PARAMETER = 0x17,
    ATTRIBUTE_REGISTERS = 0x2f,
    ATTRIBUTE_CLUSTER = 0x3d,
};

/* Copied out of the file, which need not be aligned, and only after a check of the bounds. */
struct file {
    const uint8_t *data;
    size_t bytes;
    Elf64_Ehdr header;
    Elf64_Shdr names;
    Elf64_Shdr symbols;
    Elf64_Shdr symbol_names;
    struct image *image;
};

/* Byte by byte: the data may be a text that is shorter than the magic. */
bool image_is_elf(const void *data)
{
    return strncmp(data, ELFMAG, SELFMAG) == 0;
}

size_t image_elf_bytes(const void *data)
{
    Elf64_Ehdr header;
    memcpy(&header, data, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != MACHINE_CUDA)
        return 0;
    const size_t sections = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    const size_t segments = header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
    return sections > segments ? sections : segments;
}

static bool holds(const struct file *file, size_t offset, size_t bytes)
{
    return offset <= file->bytes && bytes <= file->bytes - offset;
}

static bool section_at(const struct file *file, size_t index, Elf64_Shdr *section)
{
    const size_t offset = file->header.e_shoff + index * sizeof *section;
    if (index >= file->header.e_shnum || !holds(file, offset, sizeof *section))
        return false;
    memcpy(section, file->data + offset, sizeof *section);
    return section->sh_type == SHT_NOBITS || holds(file, section->sh_offset, section->sh_size);
}

/* A name in a string section, or NULL unless it ends inside of it. */
static const char *string_at(const struct file *file, const Elf64_Shdr *strings, size_t offset)
{
    if (offset >= strings->sh_size)
        return NULL;
    const char *string = (const char *)file->data + strings->sh_offset + offset;
    return memchr(string, '\0', strings->sh_size - offset) != NULL ? string : NULL;
}

static bool symbol_at(const struct file *file, size_t index, Elf64_Sym *symbol, const char **name)
{
    if (index >= file->symbols.sh_size / sizeof *symbol)
        return false;
    memcpy(symbol, file->data + file->symbols.sh_offset + index * sizeof *symbol, sizeof *symbol);
    *name = string_at(file, &file->symbol_names, symbol->st_name);
    return *name != NULL;
}

static struct image_function *function_named(struct image *image, const char *name)
{
    for (size_t i = 0; name != NULL && i < image->function_count; i++)
        if (strcmp(image->functions[i].name, name) == 0)
            return &image->functions[i];
    return NULL;
}

/* --- symbols ------------------------------------------------------------------------------- */

static CUresult read_variable(struct file *file, const Elf64_Sym *symbol, const char *name)
{
    Elf64_Shdr section;
    if (!section_at(file, symbol->st_shndx, &section))
        return CUDA_SUCCESS;
    const char *place = string_at(file, &file->names, section.sh_name);
    if (place == NULL ||
        (strncmp(place, ".nv.global", 10) != 0 && strncmp(place, ".nv.constant3", 13) != 0 &&
         strncmp(place, ".nv.managed", 11) != 0))
        return CUDA_SUCCESS;
    struct image_global *global = image_add_global(file->image, name, strlen(name));
    if (global == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    global->bytes = symbol->st_size;
    global->is_constant = strncmp(place, ".nv.constant3", 13) == 0;
    global->is_managed = (symbol->st_other & SYMBOL_IS_MANAGED) != 0;
    if (section.sh_type == SHT_NOBITS || symbol->st_value > section.sh_size ||
        symbol->st_size > section.sh_size - symbol->st_value || symbol->st_size == 0)
        return CUDA_SUCCESS;
    global->initial = malloc(symbol->st_size);
    if (global->initial == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(global->initial, file->data + section.sh_offset + symbol->st_value, symbol->st_size);
    global->initial_bytes = symbol->st_size;
    return CUDA_SUCCESS;
}

static CUresult read_symbols(struct file *file)
{
    Elf64_Sym symbol;
    const char *name = NULL;
    for (size_t i = 0; i < file->symbols.sh_size / sizeof symbol; i++) {
        if (!symbol_at(file, i, &symbol, &name) || symbol.st_shndx == SHN_UNDEF)
            continue;
        const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
        if (type == STT_FUNC && (symbol.st_other & SYMBOL_IS_ENTRY) != 0) {
            if (image_add_function(file->image, name, strlen(name)) == NULL)
                return CUDA_ERROR_OUT_OF_MEMORY;
        } else if (type == STT_OBJECT) {
            const CUresult result = read_variable(file, &symbol, name);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    return CUDA_SUCCESS;
}

/* --- attributes ---------------------------------------------------------------------------- */

/* An attribute of one function; false when memory is short. */
static bool read_own(struct image_function *function, unsigned attribute, const uint8_t *value,
                     size_t bytes)
{
    uint32_t words[3];
    if (bytes < sizeof words)
        return true;
    memcpy(words, value, sizeof words);
    switch (attribute) {
    case ATTRIBUTE_MAX_THREADS:
    case ATTRIBUTE_REQUIRED_THREADS:
        function->max_threads = words[0] * words[1] * words[2];
        return true;
    case ATTRIBUTE_CLUSTER:
        memcpy(function->cluster, words, sizeof words);
        return true;
    case ATTRIBUTE_PARAMETER:
        /* Index of the symbol; number and offset; alignment, space and size in one word. */
        return (words[1] & 0xffff) >= 4096 ||
               image_add_parameter(function, words[1] & 0xffff, words[1] >> 16, words[2] >> 18);
    default:
        return true;
    }
}

/* An attribute that names its function by symbol. */
static void read_shared(struct file *file, unsigned attribute, const uint8_t *value, size_t bytes)
{
    uint32_t words[2];
    Elf64_Sym symbol;
    const char *name = NULL;
    if (bytes < sizeof words)
        return;
    memcpy(words, value, sizeof words);
    if (!symbol_at(file, words[0], &symbol, &name))
        return;
    struct image_function *function = function_named(file->image, name);
    if (function != NULL && attribute == ATTRIBUTE_REGISTERS)
        function->registers = words[1];
    else if (function != NULL && attribute == ATTRIBUTE_FRAME_SIZE)
        function->local_bytes = words[1];
}

static CUresult read_attributes(struct file *file, const Elf64_Shdr *section,
                                struct image_function *function)
{
    const uint8_t *at = file->data + section->sh_offset;
    const uint8_t *end = at + section->sh_size;
    while (end - at >= 4) {
        const unsigned format = at[0];
        const unsigned attribute = at[1];
        size_t bytes = (size_t)(at[2] | at[3] << 8);
        at += 4;
        if (format != FORMAT_SIZED)
            continue;
        if (bytes > (size_t)(end - at))
            break;
        if (function == NULL)
            read_shared(file, attribute, at, bytes);
        else if (!read_own(function, attribute, at, bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;
        at += bytes;
    }
    return CUDA_SUCCESS;
}

/* Since Hopper, a kernel's section begins with what the system keeps for itself. */
static unsigned own_shared_bytes(const struct file *file, size_t section_bytes)
{
    const size_t reserved = file->image->target >= 90 ? RESERVED_SHARED_BYTES : 0;
    return (unsigned)(section_bytes > reserved ? section_bytes - reserved : 0);
}

static CUresult read_sections(struct file *file)
{
    Elf64_Shdr section;
    for (size_t i = 0; i < file->header.e_shnum; i++) {
        const char *name = NULL;
        if (!section_at(file, i, &section) ||
            (name = string_at(file, &file->names, section.sh_name)) == NULL)
            continue;
        if (strcmp(name, ".nv.info") == 0) {
            const CUresult result = read_attributes(file, &section, NULL);
            if (result != CUDA_SUCCESS)
                return result;
        } else if (strncmp(name, ".nv.info.", 9) == 0) {
            struct image_function *function = function_named(file->image, name + 9);
            const CUresult result =
                function != NULL ? read_attributes(file, &section, function) : CUDA_SUCCESS;
            if (result != CUDA_SUCCESS)
                return result;
        } else if (strncmp(name, ".nv.shared.", 11) == 0) {
            struct image_function *function = function_named(file->image, name + 11);
            if (function != NULL)
                function->shared_bytes = own_shared_bytes(file, section.sh_size);
        } else if (strcmp(name, LINKED_PTX_SECTION) == 0) {
            return image_read_text((const char *)file->data + section.sh_offset, section.sh_size,
                                   file->image);
        }
    }
    return CUDA_SUCCESS;
}

/* --- the file ------------------------------------------------------------------------------ */

static void find_symbols(struct file *file)
{
    Elf64_Shdr section;
    for (size_t i = 0; i < file->header.e_shnum; i++) {
        if (section_at(file, i, &section) && section.sh_type == SHT_SYMTAB &&
            section_at(file, section.sh_link, &file->symbol_names)) {
            file->symbols = section;
            return;
        }
    }
}

CUresult image_read_elf(const uint8_t *data, size_t bytes, struct image *image)
{
    struct file file = {.data = data, .bytes = bytes, .image = image};
    if (bytes < sizeof file.header)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&file.header, data, sizeof file.header);
    if (file.header.e_shentsize != sizeof(Elf64_Shdr) ||
        !section_at(&file, file.header.e_shstrndx, &file.names))
        return CUDA_ERROR_INVALID_IMAGE;
    /* Where the architecture stands in the flags depends on the version of the format. */
    const unsigned shift = file.header.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0;
    image->target = file.header.e_flags >> shift & 0xff;
    find_symbols(&file);
    const CUresult result = read_symbols(&file);
    return result == CUDA_SUCCESS ? read_sections(&file) : result;
}
