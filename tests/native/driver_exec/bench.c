/* What the programs have in common, and the clock that they move. */
#define _GNU_SOURCE
#include "bench.h"

#include <pthread.h>
#include <time.h>

#include "core.h"

enum { FLOW_NS = 1000 };

static uint64_t now_ns;
static bool time_flows;

/* Starts where the node's own time does. */
__attribute__((constructor)) static void start_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t sim_now(void)
{
    if (__atomic_load_n(&time_flows, __ATOMIC_ACQUIRE))
        return __atomic_add_fetch(&now_ns, FLOW_NS, __ATOMIC_ACQ_REL);
    return __atomic_load_n(&now_ns, __ATOMIC_ACQUIRE);
}

void let_time_flow(bool flows)
{
    __atomic_store_n(&time_flows, flows, __ATOMIC_RELEASE);
}

void pass_us(uint64_t microseconds)
{
    __atomic_add_fetch(&now_ns, microseconds * 1000, __ATOMIC_ACQ_REL);
}

void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static const char test_ptx[] = ".version 8.0\n"
                               ".target sm_70\n"
                               ".address_size 64\n"
                               ".visible .entry aliquot_spin(.param .u64 duration_ns) { ret; }\n"
                               ".visible .entry aliquot_spin_us_100() { ret; }\n"
                               ".visible .entry other(.param .u64 p, .param .u32 n) { ret; }\n";

CUmodule test_module(void)
{
    CUmodule module = NULL;
    OK(cuModuleLoadData(&module, test_ptx));
    return module;
}

CUfunction test_kernel(const char *name)
{
    CUfunction function = NULL;
    OK(cuModuleGetFunction(&function, test_module(), name));
    return function;
}

/* Loading code breaks captures, so what spin() needs is there before. */
static CUfunction spin_kernel(void)
{
    static __thread CUcontext context;
    static __thread CUfunction function;
    CUcontext current = NULL;
    OK(cuCtxGetCurrent(&current));
    if (current != context)
        function = test_kernel("aliquot_spin");
    context = current;
    return function;
}

CUcontext new_context(void)
{
    const CUcontext context = fresh_context();
    spin_kernel();
    return context;
}

void spin(CUstream stream, uint64_t microseconds)
{
    uint64_t duration_ns = microseconds * 1000;
    void *parameters[] = {&duration_ns};
    OK(cuLaunchKernel(spin_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

CUstream new_stream(unsigned flags)
{
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

CUevent new_event(void)
{
    CUevent event = NULL;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    return event;
}

static bool means_done(CUresult result)
{
    if (result != CUDA_ERROR_NOT_READY)
        OK(result);
    return result == CUDA_SUCCESS;
}

bool is_done(CUstream stream)
{
    return means_done(cuStreamQuery(stream));
}

bool has_happened(CUevent event)
{
    return means_done(cuEventQuery(event));
}

float elapsed_ms(CUevent start, CUevent end)
{
    float milliseconds = -1;
    OK(cuEventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

struct visit {
    void (*run)(void *);
    void *argument;
    CUcontext context;
};

static void *visit(void *argument)
{
    const struct visit *visit = argument;
    OK(cuCtxSetCurrent(visit->context));
    visit->run(visit->argument);
    return NULL;
}

void in_thread(void (*run)(void *), void *argument)
{
    struct visit given = {run, argument, NULL};
    pthread_t thread;
    OK(cuCtxGetCurrent(&given.context));
    CHECK(pthread_create(&thread, NULL, visit, &given) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}
