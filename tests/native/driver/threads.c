/* Many threads in one context: streams, events, functions, captures and graphs at the same time. */
#define _GNU_SOURCE
#include <pthread.h>

#include "check.h"
#include "cuda_exec_abi.h"

enum { THREADS = 6, ROUNDS = 40 };

static const char ptx[] = ".version 8.0\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .entry aliquot_spin(.param .u64 duration_ns) { ret; }\n";

static CUcontext context;
static CUfunction kernel;
static CUstream shared;
static CUevent shared_event;
static int function_calls;

static void spin(CUstream stream)
{
    uint64_t duration_ns = 1000;
    void *parameters[] = {&duration_ns};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void count_call(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_ACQ_REL);
}

static void use_streams(CUstream own)
{
    CUevent event = NULL;
    OK(cuEventCreate(&event, 0));
    spin(own);
    OK(cuEventRecord(event, own));
    OK(cuStreamWaitEvent(shared, event, 0));
    spin(shared);
    OK(cuEventRecord(shared_event, shared));
    OK(cuStreamWaitEvent(own, shared_event, 0));
    OK(cuLaunchHostFunc(own, count_call, &function_calls));
    spin(own);
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy_v2(event));
}

static void use_memory(CUstream own)
{
    CUdeviceptr memory = 0;
    unsigned value = 0;
    OK(cuMemAllocAsync(&memory, 64, own));
    OK(cuMemsetD32Async(memory, 0, 16, own));
    OK(cuStreamWriteValue32_v2(own, memory, 7, 0));
    OK(cuStreamWaitValue32_v2(own, memory, 7, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoHAsync_v2(&value, memory, 4, own));
    OK(cuStreamSynchronize(own));
    CHECK_EQUAL(value, 7);
    OK(cuMemFreeAsync(memory, own));
}

static void use_graph(CUstream own)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    OK(cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    spin(own);
    OK(cuLaunchHostFunc(own, count_call, &function_calls));
    spin(own);
    OK(cuStreamEndCapture(own, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, own));
    OK(cuStreamSynchronize(own));
    OK(cuGraphExecDestroy(exec));
}

static void use_modules(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&function, module, "aliquot_spin"));
    OK(cuModuleUnload(module));
}

static void *work(void *unused)
{
    (void)unused;
    CUstream own = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    for (int round = 0; round < ROUNDS; round++) {
        OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
        use_streams(own);
        use_memory(own);
        use_graph(own);
        use_modules();
        spin(CU_STREAM_PER_THREAD);
        OK(cuStreamDestroy_v2(own));
    }
    return NULL;
}

static void start(void)
{
    CUmodule module = NULL;
    context = fresh_context();
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "aliquot_spin"));
    OK(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&shared_event, CU_EVENT_DISABLE_TIMING));
}

CASE(threads_share_streams_events_and_graphs)
{
    pthread_t threads[THREADS];
    start();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(cuCtxSynchronize());
    CHECK_EQUAL(__atomic_load_n(&function_calls, __ATOMIC_ACQUIRE), 2 * THREADS * ROUNDS);
    OK(cuCtxDestroy_v2(context));
}

/* --- handles that other threads destroy ---------------------------------------------------- */

static bool is_over;

/* Any answer is right but a crash: the stream may be gone at any moment. */
static void *use_doomed(void *stream)
{
    OK(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        CUstream doomed = __atomic_load_n((CUstream *)stream, __ATOMIC_ACQUIRE);
        uint64_t duration_ns = 10;
        void *parameters[] = {&duration_ns};
        cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, doomed, parameters, NULL);
        cuEventRecord(shared_event, doomed);
        cuStreamWaitEvent(shared, shared_event, 0);
        cuStreamQuery(doomed);
        cuMemsetD8Async(0, 0, 0, doomed);
    }
    return NULL;
}

CASE(streams_may_vanish_under_other_threads)
{
    pthread_t threads[THREADS];
    CUstream doomed = NULL;
    start();
    OK(cuStreamCreate(&doomed, 0));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_doomed, &doomed) == 0);
    for (int i = 0; i < 300; i++) {
        CUstream next = NULL;
        OK(cuStreamCreate(&next, 0));
        CUstream last = __atomic_exchange_n(&doomed, next, __ATOMIC_ACQ_REL);
        OK(cuStreamDestroy_v2(last));
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(cuCtxSynchronize());
}
