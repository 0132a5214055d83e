/*
 * A tenant of a GPU that does as it is told, line by line:
 *   queue COUNT US     launches so many kernels of so many microseconds
 *   measure US         launches one between two events and prints the milliseconds between them
 *   sync               waits for everything
 * Every line is answered with one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_exec_abi.h"

static const char ptx[] = ".version 8.0\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .entry aliquot_spin(.param .u64 duration_ns) { ret; }\n";

static CUfunction kernel;
static CUstream stream;

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s answers %d\n", what, (int)result);
    exit(1);
}

#define OK(call) check(call, #call)

static void launch(unsigned long long microseconds)
{
    unsigned long long duration_ns = microseconds * 1000;
    void *parameters[] = {&duration_ns};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void measure(unsigned long long microseconds)
{
    CUevent start = NULL;
    CUevent end = NULL;
    float milliseconds = 0;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    launch(1000); /* the events come behind something, not into an idle stream */
    OK(cuEventRecord(start, stream));
    launch(microseconds);
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    printf("%f\n", (double)milliseconds);
}

int main(void)
{
    CUcontext context = NULL;
    CUmodule module = NULL;
    char line[128];
    unsigned long long count = 0;
    unsigned long long microseconds = 0;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "aliquot_spin"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "queue %llu %llu", &count, &microseconds) == 2) {
            for (unsigned long long i = 0; i < count; i++)
                launch(microseconds);
            puts("queued");
        } else if (sscanf(line, "measure %llu", &microseconds) == 1) {
            measure(microseconds);
        } else if (strcmp(line, "sync\n") == 0) {
            OK(cuStreamSynchronize(stream));
            puts("done");
        } else {
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
