/*
 * A program that loads a GPU in a given way, for measuring shares; run by bench/throttle.py.
 *
 * It finds the driver as programs do (dlopen, then dlsym or cuGetProcAddress), launches
 * `aliquot_spin` in a loop until it is told to stop by SIGTERM, and prints what it saw as JSON.
 * Arguments are name=value, see `options`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_exec_abi.h"

enum { THREADS_MAX = 16, STREAMS_MAX = 16, SIZES_MAX = 16 };

enum api { PLAIN, EX, COOPERATIVE, PTSZ, GRAPH, GRID, MULTI, EX_PTSZ };
static const char *const API_NAMES[] = {"plain", "ex",   "cooperative", "ptsz",
                                        "graph", "grid", "multi",       "ex_ptsz"};

static struct {
    unsigned device;
    unsigned blocks;
    unsigned per_sync;
    unsigned threads;
    unsigned streams; /* per thread; 0: the default stream */
    enum api api;
    bool by_address;     /* find functions through cuGetProcAddress */
    bool chained;        /* each stream waits for the one before */
    bool per_second;     /* the size changes every second instead of every launch */
    double idle_after_s; /* pause once after so long ... */
    double idle_s;       /* ... for so long */
    double start_after_s;
    bool forks; /* launch something, then go on in a child as well */
    unsigned size_count;
    uint64_t sizes_ns[SIZES_MAX];
} options = {.blocks = 132, .per_sync = 16, .threads = 1, .size_count = 1, .sizes_ns = {50000}};

static volatile sig_atomic_t stopping;
static void *library;
static CUcontext context;
static CUfunction function;
static uint64_t began_ns;
static uint64_t launches;
static uint64_t longest_ns;

#define CALLS(X)                                                                                   \
    X(cuInit, cuInit)                                                                              \
    X(cuDeviceGet, cuDeviceGet)                                                                    \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                          \
    X(cuCtxSetCurrent, cuCtxSetCurrent)                                                            \
    X(cuModuleLoadData, cuModuleLoadData)                                                          \
    X(cuModuleGetFunction, cuModuleGetFunction)                                                    \
    X(cuFuncSetBlockShape, cuFuncSetBlockShape)                                                    \
    X(cuParamSetSize, cuParamSetSize)                                                              \
    X(cuParamSetv, cuParamSetv)                                                                    \
    X(cuLaunchKernel, cuLaunchKernel)                                                              \
    X(cuLaunchKernelEx, cuLaunchKernelEx)                                                          \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel)                                        \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice)                  \
    X(cuLaunchGridAsync, cuLaunchGridAsync)                                                        \
    X(cuLaunchKernel_ptsz, cuLaunchKernel_ptsz)                                                    \
    X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx_ptsz)                                                \
    X(cuEventCreate, cuEventCreate)                                                                \
    X(cuEventRecord, cuEventRecord)                                                                \
    X(cuStreamWaitEvent, cuStreamWaitEvent)                                                        \
    X(cuStreamCreate, cuStreamCreate)                                                              \
    X(cuStreamSynchronize, cuStreamSynchronize)                                                    \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize_ptsz)                                          \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2)                                               \
    X(cuStreamEndCapture, cuStreamEndCapture)                                                      \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)                                    \
    X(cuGraphLaunch, cuGraphLaunch)

static struct {
#define POINTER(name, symbol) __typeof__(&symbol) name;
    CALLS(POINTER)
#undef POINTER
} cu;

static void die(const char *what, int code)
{
    fprintf(stderr, "load: %s failed: %d\n", what, code);
    exit(1);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult result = (call);                                                                  \
        if (result != CUDA_SUCCESS)                                                                \
            die(#call, (int)result);                                                               \
    } while (0)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- finding the driver -------------------------------------------------------------------- */

static void *find(const char *name, const char *symbol)
{
    void *found = dlsym(library, symbol);
    if (options.by_address) {
        __typeof__(&cuGetProcAddress_v2) ask;
        *(void **)&ask = dlsym(library, "cuGetProcAddress_v2");
        bool own = strstr(symbol, "_ptsz") != NULL;
        char base[64];
        snprintf(base, sizeof base, "%s", name);
        if (own)
            *strstr(base, "_ptsz") = '\0';
        CHECK(ask(base, &found, 13000, own ? 2 : 0, NULL));
    }
    if (found == NULL)
        die(symbol, -1);
    return found;
}

static void bind(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        die(dlerror(), -1);
#define BIND(name, symbol) *(void **)&cu.name = find(#name, #symbol);
    CALLS(BIND)
#undef BIND
}

static const char PTX[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry aliquot_spin(.param .u64 ns)\n{\n ret;\n}\n";

static void prepare(void)
{
    CUmodule module;
    CUdevice device;
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, (int)options.device));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuModuleLoadData(&module, PTX));
    CHECK(cu.cuModuleGetFunction(&function, module, "aliquot_spin"));
}

/* --- launching ----------------------------------------------------------------------------- */

static CUgraphExec capture(CUstream stream, uint64_t ns)
{
    CUgraph graph;
    CUgraphExec exec;
    void *arguments[] = {&ns};
    CHECK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.cuLaunchKernel(function, options.blocks, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
    CHECK(cu.cuStreamEndCapture(stream, &graph));
    CHECK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void launch(CUstream stream, uint64_t ns, CUgraphExec graph)
{
    void *arguments[] = {&ns};
    CUlaunchConfig config = {.gridDimX = options.blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 128,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    CUDA_LAUNCH_PARAMS multi = {.function = function,
                                .gridDimX = options.blocks,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = 128,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .hStream = stream,
                                .kernelParams = arguments};
    switch (options.api) {
    case PLAIN:
        CHECK(cu.cuLaunchKernel(function, options.blocks, 1, 1, 128, 1, 1, 0, stream, arguments,
                                NULL));
        break;
    case EX:
        CHECK(cu.cuLaunchKernelEx(&config, function, arguments, NULL));
        break;
    case COOPERATIVE:
        CHECK(cu.cuLaunchCooperativeKernel(function, options.blocks, 1, 1, 128, 1, 1, 0, stream,
                                           arguments));
        break;
    case PTSZ:
        CHECK(cu.cuLaunchKernel_ptsz(function, options.blocks, 1, 1, 128, 1, 1, 0, stream,
                                     arguments, NULL));
        break;
    case EX_PTSZ:
        CHECK(cu.cuLaunchKernelEx_ptsz(&config, function, arguments, NULL));
        break;
    case GRAPH:
        CHECK(cu.cuGraphLaunch(graph, stream));
        break;
    case GRID:
        CHECK(cu.cuFuncSetBlockShape(function, 128, 1, 1));
        CHECK(cu.cuParamSetSize(function, sizeof ns));
        CHECK(cu.cuParamSetv(function, 0, &ns, sizeof ns));
        CHECK(cu.cuLaunchGridAsync(function, (int)options.blocks, 1, stream));
        break;
    case MULTI:
        CHECK(cu.cuLaunchCooperativeKernelMultiDevice(&multi, 1, 0));
        break;
    }
}

static void synchronize(CUstream stream)
{
    if (options.api == PTSZ || options.api == EX_PTSZ)
        CHECK(cu.cuStreamSynchronize_ptsz(stream));
    else
        CHECK(cu.cuStreamSynchronize(stream));
}

static void idle(double seconds)
{
    uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    while (!stopping && now_ns() < until)
        usleep(20000);
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument + 1;
    CUstream streams[STREAMS_MAX] = {NULL};
    CUgraphExec graphs[SIZES_MAX] = {NULL};
    unsigned stream_count = options.streams == 0 ? 1 : options.streams;
    CUevent event;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < options.streams; i++)
        CHECK(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (options.api == GRAPH) {
        if (options.streams == 0)
            CHECK(cu.cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
        for (unsigned i = 0; i < options.size_count; i++)
            graphs[i] = capture(streams[0], options.sizes_ns[i]);
    }
    bool has_idled = options.idle_s == 0;
    while (!stopping) {
        double elapsed_s = (double)(now_ns() - began_ns) * 1e-9;
        if (!has_idled && elapsed_s > options.idle_after_s) {
            idle(options.idle_s);
            has_idled = true;
        }
        for (unsigned i = 0; i < options.per_sync && !stopping; i++) {
            unsigned size = options.per_second ? (unsigned)elapsed_s % options.size_count
                                               : (unsigned)rand_r(&seed) % options.size_count;
            uint64_t before = now_ns();
            launch(streams[i % stream_count], options.sizes_ns[size], graphs[size]);
            uint64_t took = now_ns() - before;
            if (options.chained) {
                CHECK(cu.cuEventRecord(event, streams[i % stream_count]));
                CHECK(cu.cuStreamWaitEvent(streams[(i + 1) % stream_count], event, 0));
            }
            __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
            if (took > __atomic_load_n(&longest_ns, __ATOMIC_RELAXED))
                __atomic_store_n(&longest_ns, took, __ATOMIC_RELAXED);
        }
        for (unsigned i = 0; i < stream_count; i++)
            synchronize(streams[i]);
    }
    return NULL;
}

/* --- arguments ----------------------------------------------------------------------------- */

static void set_sizes(const char *text)
{
    options.size_count = 0;
    for (const char *at = text; *at != '\0' && options.size_count < SIZES_MAX;) {
        char *end;
        options.sizes_ns[options.size_count++] = (uint64_t)(strtod(at, &end) * 1000);
        at = *end == ',' ? end + 1 : end;
    }
}

static void set_api(const char *text)
{
    for (unsigned i = 0; i < sizeof API_NAMES / sizeof *API_NAMES; i++)
        if (strcmp(API_NAMES[i], text) == 0) {
            options.api = (enum api)i;
            return;
        }
    die(text, -1);
}

static void set(const char *argument)
{
    const char *value = strchr(argument, '=');
    if (value == NULL)
        die(argument, -1);
    size_t length = (size_t)(value++ - argument);
#define IS(name) (strlen(name) == length && strncmp(argument, name, length) == 0)
    unsigned number = (unsigned)strtoul(value, NULL, 10);
    if (IS("device"))
        options.device = number;
    else if (IS("blocks"))
        options.blocks = number;
    else if (IS("per_sync"))
        options.per_sync = number;
    else if (IS("threads"))
        options.threads = number < THREADS_MAX ? number : THREADS_MAX;
    else if (IS("streams"))
        options.streams = number < STREAMS_MAX ? number : STREAMS_MAX;
    else if (IS("by_address"))
        options.by_address = number != 0;
    else if (IS("chained"))
        options.chained = number != 0;
    else if (IS("per_second"))
        options.per_second = number != 0;
    else if (IS("idle_after"))
        options.idle_after_s = strtod(value, NULL);
    else if (IS("idle"))
        options.idle_s = strtod(value, NULL);
    else if (IS("forks"))
        options.forks = number != 0;
    else if (IS("start_after"))
        options.start_after_s = strtod(value, NULL);
    else if (IS("kernel_us"))
        set_sizes(value);
    else if (IS("api"))
        set_api(value);
    else
        die(argument, -1);
}

static void stop(int signal)
{
    (void)signal;
    stopping = 1;
}

/* A child has none of its parent's contexts, and is a process of the GPU of its own. */
static pid_t fork_while_launching(void)
{
    for (unsigned i = 0; i < 1000; i++)
        launch(NULL, options.sizes_ns[0], NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prepare();
    }
    return child;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS_MAX];
    pid_t child = 0;
    for (int i = 1; i < count; i++)
        set(arguments[i]);
    signal(SIGTERM, stop);
    idle(options.start_after_s);
    bind();
    prepare();
    if (options.forks)
        child = fork_while_launching();
    began_ns = now_ns();
    printf("{\"ready\": true, \"pid\": %d}\n", (int)getpid());
    fflush(stdout);
    for (unsigned i = 0; i < options.threads; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    if (child > 0) {
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
    }
    printf("{\"launches\": %llu, \"longest_ns\": %llu}\n", (unsigned long long)launches,
           (unsigned long long)longest_ns);
    return 0;
}
