/*
 * One driver call in a loop: `loops CALL COUNT LIVE BYTES` prints how many nanoseconds each took.
 *
 * LIVE allocations are made before the loop. The loop is timed in parts, and the fastest part
 * counts: what a shared machine does beside it is not what is measured. `loops wait 0 LIVE BYTES`
 * holds its allocations, says so, and waits until its standard input ends.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_exec_abi.h"

enum { PARTS = 20 };

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry nothing()\n{\nret;\n}\n";

static CUfunction function;
static size_t bytes;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s answers %d\n", what, (int)result);
    exit(1);
}

static void alloc_free(void)
{
    CUdeviceptr address;
    check(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
    check(cuMemFree_v2(address), "cuMemFree");
}

static void memory_info(void)
{
    size_t free_bytes;
    size_t total_bytes;
    check(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
}

static void launch(void)
{
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

static double fastest_ns(void (*call)(void), uint64_t count)
{
    double best = 1e18;
    for (unsigned part = 0; part < PARTS; part++) {
        const uint64_t start = now_ns();
        for (uint64_t i = 0; i < count / PARTS; i++)
            call();
        const double each = (double)(now_ns() - start) / (double)(count / PARTS);
        best = each < best ? each : best;
    }
    return best;
}

int main(int argument_count, char **arguments)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr address;
    if (argument_count != 5) {
        fprintf(stderr, "usage: loops alloc|info|launch|wait COUNT LIVE BYTES\n");
        return 2;
    }
    const uint64_t live = strtoull(arguments[3], NULL, 10);
    bytes = strtoull(arguments[4], NULL, 10);
    check(cuInit(0), "cuInit");
    check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    check(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    check(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
    for (uint64_t i = 0; i < live; i++)
        check(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
    if (strcmp(arguments[1], "wait") == 0) {
        puts("waiting");
        fflush(stdout);
        return getchar() == EOF ? 0 : 1;
    }
    void (*call)(void) = strcmp(arguments[1], "alloc") == 0  ? alloc_free
                         : strcmp(arguments[1], "info") == 0 ? memory_info
                                                             : launch;
    printf("%.2f\n", fastest_ns(call, strtoull(arguments[2], NULL, 10)));
    return 0;
}
