/* Launches a kernel as often as the first argument says; run by bench/launch_cost.py. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_exec_abi.h"

#define FIND(name) __typeof__(&name) find_##name = (__typeof__(&name))dlsym(library, #name)

static const char PTX[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry aliquot_spin_us_20()\n{\n ret;\n}\n";

int main(int count, char **arguments)
{
    long launches = count > 1 ? atol(arguments[1]) : 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return 1;
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
    CUcontext context;
    CUmodule module;
    CUfunction function;
    struct timespec from;
    struct timespec to;
    if (find_cuInit(0) || find_cuDevicePrimaryCtxRetain(&context, 0) ||
        find_cuCtxSetCurrent(context) || find_cuModuleLoadData(&module, PTX) ||
        find_cuModuleGetFunction(&function, module, "aliquot_spin_us_20"))
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < launches; i++)
        find_cuLaunchKernel(function, 132, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.0f\n", (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec));
    return 0;
}
