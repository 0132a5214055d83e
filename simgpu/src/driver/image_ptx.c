/*
 * Reading PTX: the declarations of kernels and variables; instructions are passed over.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "ptx_token.h"

enum { SHARED_VARIABLES = 256 };

/* What has been read so far. */
struct reader {
    struct scanner scanner;
    struct image *image;
    struct {
        const char *name;
        size_t length;
        size_t bytes;
    } shared[SHARED_VARIABLES]; /* of the module: they count for the kernels that name them */
    size_t shared_count;
    CUresult result;
};

/* A variable or a parameter as it is declared. */
struct declaration {
    size_t element_bytes;
    size_t align;
    size_t count; /* elements; 0: an array of unknown length */
    const char *name;
    size_t name_length;
    bool is_managed;
};

static bool next(struct reader *reader)
{
    return scanner_next(&reader->scanner);
}

static bool at(const struct reader *reader, const char *text)
{
    return token_is(&reader->scanner, text);
}

static unsigned number_here(const struct reader *reader)
{
    return (unsigned)strtoul(reader->scanner.token, NULL, 0);
}

/* .u32 is 4, .v4 is 0 here: not a type. */
static size_t type_bytes(const struct scanner *scanner)
{
    if (scanner->length < 3 || scanner->token[0] != '.' || !strchr("usbf", scanner->token[1]))
        return 0;
    switch (strtoul(scanner->token + 2, NULL, 10)) {
    case 8:
        return 1;
    case 16:
        return token_is(scanner, ".f16x2") ? 4 : 2;
    case 32:
        return 4;
    case 64:
        return 8;
    case 128:
        return 16;
    default:
        return 0;
    }
}

/* From behind the state space to behind the name and its dimensions. */
static bool read_declaration(struct reader *reader, struct declaration *declared)
{
    *declared = (struct declaration){.element_bytes = 8, .align = 0, .count = 1};
    size_t vector = 1;
    while (reader->scanner.token[0] == '.') {
        if (at(reader, ".align") && next(reader)) {
            declared->align = declared->align != 0 ? declared->align : number_here(reader);
        } else if (at(reader, ".v2") || at(reader, ".v4") || at(reader, ".v8")) {
            vector = (size_t)(reader->scanner.token[2] - '0');
        } else if (at(reader, ".managed")) {
            declared->is_managed = true;
        } else if (at(reader, ".ptr")) {
            /* What it points to, and how that is aligned, is not about the parameter itself. */
            declared->align = declared->align != 0 ? declared->align : declared->element_bytes;
        } else if (type_bytes(&reader->scanner) != 0) {
            declared->element_bytes = type_bytes(&reader->scanner);
        }
        if (!next(reader))
            return false;
        while (at(reader, "(") || at(reader, ")")) {
            if (!next(reader))
                return false;
        }
    }
    declared->element_bytes *= vector;
    declared->align = declared->align != 0 ? declared->align : declared->element_bytes;
    declared->name = reader->scanner.token;
    declared->name_length = reader->scanner.length;
    while (next(reader) && at(reader, "[")) {
        if (!next(reader))
            return false;
        if (at(reader, "]")) {
            declared->count = 0;
            continue;
        }
        declared->count *= number_here(reader);
        if (!next(reader) || !at(reader, "]"))
            return false;
    }
    return true;
}

/* --- variables ----------------------------------------------------------------------------- */

/* One value of an initialiser, little-endian; addresses of other variables stay zero. */
static void store_value(const struct scanner *scanner, bool negative, uint8_t *place, size_t bytes)
{
    const char *token = scanner->token;
    uint64_t value = 0;
    if (token[0] == '0' &&
        (token[1] == 'f' || token[1] == 'F' || token[1] == 'd' || token[1] == 'D'))
        value = strtoull(token + 2, NULL, 16);
    else if (isdigit((unsigned char)token[0]))
        value = strtoull(token, NULL, 0);
    if (negative)
        value = (uint64_t)0 - value;
    memcpy(place, &value, bytes < sizeof value ? bytes : sizeof value);
}

static bool read_initial(struct reader *reader, const struct declaration *declared,
                         struct image_global *global)
{
    size_t capacity = 0;
    size_t depth = 0;
    bool negative = false;
    while (next(reader) && !(depth == 0 && at(reader, ";"))) {
        if (at(reader, "{")) {
            depth++;
        } else if (at(reader, "}") && depth > 0) {
            depth--;
        } else if (at(reader, "-")) {
            negative = true;
        } else if (!at(reader, ",")) {
            if (global->initial_bytes + declared->element_bytes > capacity) {
                capacity = capacity == 0 ? 64 + declared->element_bytes : capacity * 2;
                uint8_t *larger = realloc(global->initial, capacity);
                if (larger == NULL)
                    return false;
                global->initial = larger;
            }
            uint8_t *place = global->initial + global->initial_bytes;
            memset(place, 0, declared->element_bytes);
            store_value(&reader->scanner, negative, place, declared->element_bytes);
            global->initial_bytes += declared->element_bytes;
            negative = false;
        }
    }
    return at(reader, ";");
}

static bool read_variable(struct reader *reader, bool is_extern)
{
    const bool is_shared = at(reader, ".shared");
    const bool is_constant = at(reader, ".const");
    struct declaration declared;
    if (!next(reader) || !read_declaration(reader, &declared))
        return false;
    const size_t bytes = declared.element_bytes * declared.count;
    if (is_shared && !is_extern && reader->shared_count < SHARED_VARIABLES) {
        reader->shared[reader->shared_count].name = declared.name;
        reader->shared[reader->shared_count].length = declared.name_length;
        reader->shared[reader->shared_count++].bytes = bytes;
    }
    if (is_shared || is_extern)
        return scanner_skip_to(&reader->scanner, ";");
    struct image_global *global =
        image_add_global(reader->image, declared.name, declared.name_length);
    if (global == NULL)
        return false;
    global->is_managed = declared.is_managed;
    global->is_constant = is_constant;
    global->bytes = bytes;
    if (at(reader, "=") && !read_initial(reader, &declared, global))
        return false;
    if (global->initial_bytes > global->bytes) {
        if (declared.count != 0)
            global->initial_bytes = global->bytes;
        else
            global->bytes = global->initial_bytes;
    }
    return scanner_skip_to(&reader->scanner, ";");
}

/* --- kernels ------------------------------------------------------------------------------- */

static bool read_parameters(struct reader *reader, struct image_function *function)
{
    size_t end = 0;
    while (next(reader) && !at(reader, ")")) {
        if (at(reader, ","))
            continue;
        struct declaration declared;
        if (!at(reader, ".param") || !next(reader) || !read_declaration(reader, &declared))
            return false;
        const size_t offset = (end + declared.align - 1) / declared.align * declared.align;
        end = offset + declared.element_bytes * declared.count;
        if (!image_add_parameter(function, function->parameter_count, offset, end - offset))
            return false;
        if (at(reader, ")"))
            break;
    }
    return at(reader, ")");
}

/* Up to three numbers with commas between them. */
static bool read_triple(struct reader *reader, unsigned triple[3])
{
    triple[0] = triple[1] = triple[2] = 1;
    for (int i = 0; i < 3; i++) {
        if (!next(reader))
            return false;
        triple[i] = number_here(reader);
        if (!next(reader))
            return false;
        if (!at(reader, ","))
            break;
    }
    return true;
}

static bool read_limits(struct reader *reader, struct image_function *function)
{
    bool more = next(reader);
    while (more && !at(reader, "{") && !at(reader, ";")) {
        if (at(reader, ".maxntid") || at(reader, ".reqntid")) {
            unsigned threads[3];
            more = read_triple(reader, threads);
            function->max_threads = threads[0] * threads[1] * threads[2];
        } else if (at(reader, ".reqnctapercluster")) {
            more = read_triple(reader, function->cluster);
        } else if (at(reader, ".pragma")) {
            more = next(reader) && next(reader) && next(reader);
        } else if (at(reader, ".maxnreg") && next(reader)) {
            function->registers = number_here(reader);
            more = next(reader);
        } else {
            more = next(reader);
        }
    }
    return more;
}

static void count_shared(struct reader *reader, bool counted[], struct image_function *function)
{
    for (size_t i = 0; i < reader->shared_count; i++) {
        if (counted[i] || reader->shared[i].length != reader->scanner.length ||
            memcmp(reader->shared[i].name, reader->scanner.token, reader->scanner.length) != 0)
            continue;
        counted[i] = true;
        function->shared_bytes += (unsigned)reader->shared[i].bytes;
    }
}

static bool read_body(struct reader *reader, struct image_function *function)
{
    bool counted[SHARED_VARIABLES] = {false};
    for (size_t depth = 1; depth > 0;) {
        if (!next(reader))
            return false;
        if (at(reader, "{")) {
            depth++;
        } else if (at(reader, "}")) {
            depth--;
        } else if (at(reader, ".shared") || at(reader, ".local")) {
            const bool is_shared = at(reader, ".shared");
            struct declaration declared;
            if (!next(reader) || !read_declaration(reader, &declared))
                return false;
            const unsigned bytes = (unsigned)(declared.element_bytes * declared.count);
            *(is_shared ? &function->shared_bytes : &function->local_bytes) += bytes;
        } else {
            count_shared(reader, counted, function);
        }
    }
    return true;
}

static bool read_entry(struct reader *reader)
{
    if (!next(reader))
        return false;
    struct image_function *function =
        image_add_function(reader->image, reader->scanner.token, reader->scanner.length);
    if (function == NULL)
        return false;
    const struct scanner before = reader->scanner;
    if (!next(reader))
        return false;
    if (!at(reader, "("))
        reader->scanner = before; /* no parameters: the limits start here */
    else if (!read_parameters(reader, function))
        return false;
    if (!read_limits(reader, function))
        return false;
    return at(reader, ";") || read_body(reader, function);
}

/* --- the module ---------------------------------------------------------------------------- */

static bool read_version(struct reader *reader)
{
    if (!next(reader))
        return false;
    char *minor = NULL;
    const unsigned long major = strtoul(reader->scanner.token, &minor, 10);
    reader->image->ptx_version = (unsigned)(major * 10);
    if (minor != NULL && *minor == '.')
        reader->image->ptx_version += (unsigned)strtoul(minor + 1, NULL, 10);
    return major > 0;
}

static bool read_target(struct reader *reader)
{
    if (!next(reader) || strncmp(reader->scanner.token, "sm_", 3) != 0)
        return false;
    reader->image->target = (unsigned)strtoul(reader->scanner.token + 3, NULL, 10);
    return reader->image->target > 0;
}

static bool read_module(struct reader *reader)
{
    bool is_extern = false;
    while (next(reader)) {
        bool fine = true;
        if (at(reader, ".version"))
            fine = read_version(reader);
        else if (at(reader, ".target"))
            fine = read_target(reader);
        else if (at(reader, ".entry"))
            fine = read_entry(reader);
        else if (at(reader, ".global") || at(reader, ".const") || at(reader, ".shared"))
            fine = read_variable(reader, is_extern);
        else if (at(reader, "{"))
            fine = scanner_skip_block(&reader->scanner);
        is_extern = at(reader, ".extern");
        if (!fine)
            return false;
    }
    return reader->image->ptx_version > 0 && reader->image->target > 0;
}

CUresult image_read_ptx(const char *text, size_t bytes, struct image *image)
{
    struct reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reader->scanner = (struct scanner){.at = text, .end = text + bytes};
    reader->image = image;
    const bool fine = read_module(reader);
    free(reader);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}
