/*
 * Memory that belongs to one process and not to its forked children, where it reads as zeroes.
 */
#pragma once

#include <stddef.h>

/* Pages, zeroed, or NULL. */
void *private_pages(size_t bytes);

/*
 * The pages that `*place` points to, made on first use; several threads may ask at once. In a
 * forked child they are zeroes again. NULL when there is no memory.
 */
void *private_root(void **place, size_t bytes);
