/*
 * Memory that a forked child does not inherit.
 */
#define _GNU_SOURCE
#include "private.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Kernels before 4.14 cannot wipe: there every use has to ask who is asking. */
static uint8_t cannot_wipe;

/* Before what the caller sees. */
struct header {
    _Alignas(64) int32_t pid;
    uint32_t bytes;
};

void *private_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static void *make(void **place, size_t bytes)
{
    struct header *header = private_pages(bytes + sizeof *header);
    if (header == NULL)
        return NULL;
    if (madvise(header, bytes + sizeof *header, MADV_WIPEONFORK) != 0)
        __atomic_store_n(&cannot_wipe, 1, __ATOMIC_RELAXED);
    header->pid = getpid();
    header->bytes = (uint32_t)bytes;
    void *expected = NULL;
    if (!__atomic_compare_exchange_n(place, &expected, header + 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        munmap(header, bytes + sizeof *header);
        return expected;
    }
    return header + 1;
}

void *private_root(void **place, size_t bytes)
{
    void *root = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (__builtin_expect(root == NULL, 0))
        return make(place, bytes);
    if (__builtin_expect(__atomic_load_n(&cannot_wipe, __ATOMIC_RELAXED), 0)) {
        struct header *header = (struct header *)root - 1;
        if (header->pid != getpid()) {
            memset(root, 0, header->bytes);
            header->pid = getpid();
        }
    }
    return root;
}
