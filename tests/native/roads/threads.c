/*
 * Threads that allocate and free in one context until all are done, then what is left: the free
 * bytes before and after, in one line, and how often the cap was met.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_abi.h"

enum { KEPT = 16 };

static CUcontext context;
static unsigned rounds;
static unsigned refused;

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *work(void *argument)
{
    unsigned state = (unsigned)(size_t)argument;
    CUdeviceptr kept[KEPT] = {0};
    cuCtxSetCurrent(context);
    for (unsigned round = 0; round < rounds; round++) {
        CUdeviceptr *place = &kept[next(&state) % KEPT];
        if (*place != 0)
            cuMemFree_v2(*place);
        *place = 0;
        /* Mostly small ones, which share blocks with those of other threads. */
        const unsigned kind = next(&state) % 8;
        const size_t bytes = kind < 5   ? 512 + next(&state) % 200000
                             : kind < 7 ? ((size_t)1 << 20) + next(&state) % (8 << 20)
                                        : (size_t)300 << 20;
        const CUresult result = cuMemAlloc_v2(place, bytes);
        if (result != CUDA_SUCCESS) {
            *place = 0;
            if (result != CUDA_ERROR_OUT_OF_MEMORY)
                abort();
            __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        }
    }
    for (unsigned i = 0; i < KEPT; i++)
        if (kept[i] != 0)
            cuMemFree_v2(kept[i]);
    return NULL;
}

int main(int argument_count, char **arguments)
{
    enum { MOST_THREADS = 64 };
    pthread_t threads[MOST_THREADS];
    size_t before;
    size_t after;
    size_t total;
    const unsigned count = argument_count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    rounds = argument_count > 2 ? (unsigned)atoi(arguments[2]) : 1;
    cuInit(0);
    if (cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS || count > MOST_THREADS)
        return 1;
    cuMemGetInfo_v2(&before, &total);
    for (unsigned i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, (void *)(size_t)(i + 1));
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    cuMemGetInfo_v2(&after, &total);
    printf("%zu %zu %u\n", before, after, refused);
    return 0;
}
