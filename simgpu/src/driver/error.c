/*
 * The names and the meaning of the driver's answers.
 */
#include "driver.h"

struct error {
    CUresult code;
    const char *name;
    const char *sentence;
};

#define ERROR(name, sentence) {name, #name, sentence},
static const struct error errors[] = {
#include "errors.def"
};

static const struct error *error_of(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == code)
            return &errors[i];
    }
    return NULL;
}

ENTRY cuGetErrorName(CUresult code, const char **text)
{
    REQUIRE(text != NULL);
    const struct error *error = error_of(code);
    *text = error != NULL ? error->name : NULL;
    return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuGetErrorString(CUresult code, const char **text)
{
    REQUIRE(text != NULL);
    const struct error *error = error_of(code);
    *text = error != NULL ? error->sentence : NULL;
    return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
