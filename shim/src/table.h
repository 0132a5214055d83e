/*
 * The table of replaced calls: what hooks.def says, and the driver's own functions behind them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_shim_abi.h"
#include "nvml_shim_abi.h"

/* Variables that other files use: said so, or each use would go through the offset table. */
#define INTERNAL __attribute__((visibility("hidden")))

/*
 * The driver's own functions. Empty until driver.c has found the library; what a library lacks is
 * then a function that says so, hence nothing here has to be tested before it is called.
 */
struct originals {
#define DRIVER(symbol, since, treatment, words) __typeof__(&symbol) symbol;
#define NVML(symbol, treatment, words) __typeof__(&symbol) symbol;
#define DRIVER_USED(symbol) __typeof__(&symbol) symbol;
#define NVML_USED(symbol) __typeof__(&symbol) symbol;
#include "hooks.def"
#undef DRIVER
#undef NVML
#undef DRIVER_USED
#undef NVML_USED
};

extern struct originals real INTERNAL;

enum library { LIBRARY_DRIVER, LIBRARY_NVML, LIBRARIES };

enum treatment {
    TREATMENT_NONE, /* called, not replaced */
    TREATMENT_RESERVES,
    TREATMENT_MEASURES,
    TREATMENT_RETURNS,
    TREATMENT_FOLLOWS,
    TREATMENT_SHOWS,
    TREATMENT_FINDS,
    TREATMENT_OPENS,
    TREATMENT_THROTTLES,
    TREATMENT_ORDERS,
};

struct row {
    const char *symbol;
    void *replacement; /* NULL: called, not replaced */
    void **original;   /* its place in `real` */
    int since;
    uint8_t treatment;
    uint8_t library;
};

extern const struct row rows[];
extern const unsigned row_count;

/* The row that replaces the symbol of exactly this name, or NULL. */
const struct row *row_named(const char *symbol);

/*
 * The row whose original this is and whose symbol begins with the name, or NULL. Functions that do
 * the same may share an address, hence the name.
 */
const struct row *row_of(const void *original, const char *name);

/* Whether this is one of our own functions, which a driver may hand back to us. */
bool row_replaces(const void *function);

/*
 * The row that cuGetProcAddress means by a base name, a CUDA version and the choice of default
 * stream; NULL when no version of that name is replaced.
 */
const struct row *row_requested(const char *base, int version, int per_thread);
