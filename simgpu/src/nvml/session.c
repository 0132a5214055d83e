/* Initialisation, and what every entry checks first. */
#include "session.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct nvmlDevice_st {
    char unused; /* a handle is an address in `handles`, never what it points to */
};

static struct nvmlDevice_st handles[SIM_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned init_count;
static const struct sim_state *initialised; /* NULL: nvmlInit is still to come */

void session_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void session_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void watch_forks(void)
{
    pthread_atfork(session_lock, session_unlock, session_unlock);
}

/* A node that cannot be used would look like a machine without a driver; say it once. */
static void complain(const char *why)
{
    static bool said;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        fprintf(stderr, "simulated libnvidia-ml: %s\n", why);
}

static nvmlReturn_t init(void)
{
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    const char *why = "";

    pthread_once(&watching, watch_forks);
    const struct sim_state *node = sim_node(&why);
    if (!node) {
        complain(why);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    session_lock();
    init_count++;
    __atomic_store_n(&initialised, node, __ATOMIC_RELEASE);
    session_unlock();
    return NVML_SUCCESS;
}

ENTRY nvmlInit_v2(void)
{
    return init();
}
TWIN(nvmlInit, nvmlInit_v2);

ENTRY nvmlInitWithFlags(unsigned int flags)
{
    REQUIRE((flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) == 0,
            NVML_ERROR_INVALID_ARGUMENT);
    return init();
}

ENTRY nvmlShutdown(void)
{
    nvmlReturn_t answer = NVML_ERROR_UNINITIALIZED;

    session_lock();
    if (init_count > 0) {
        answer = NVML_SUCCESS;
        if (--init_count == 0)
            __atomic_store_n(&initialised, NULL, __ATOMIC_RELEASE);
    }
    session_unlock();
    return answer;
}

static void be_slow(uint64_t delay_ns)
{
    struct timespec left = {(time_t)(delay_ns / 1000000000), (long)(delay_ns % 1000000000)};
    while (delay_ns && nanosleep(&left, &left) != 0)
        ;
}

nvmlReturn_t open_system(const struct sim_state **node, bool arguments)
{
    *node = __atomic_load_n(&initialised, __ATOMIC_ACQUIRE);
    REQUIRE(*node, NVML_ERROR_UNINITIALIZED);
    be_slow(UINT64_C(1000) * __atomic_load_n(&(*node)->nvml_delay_us, __ATOMIC_RELAXED));
    return arguments ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

struct gpu gpu_of(const struct sim_state *node, unsigned index)
{
    const struct sim_device *device = &node->devices[index];
    return (struct gpu){
        .index = index, .node = node, .device = device, .profile = &device->profile};
}

nvmlDevice_t handle_of(unsigned index)
{
    return &handles[index];
}

/* An error that was injected, as NVML numbers them; a CUDA error means that something is wrong. */
static nvmlReturn_t injected(unsigned index)
{
    int error = sim_fault(index, SIM_CALL_NVML);
    if (error > NVML_ERROR_RESET_TYPE_NOT_SUPPORTED)
        return NVML_ERROR_UNKNOWN;
    return (nvmlReturn_t)error;
}

nvmlReturn_t check_gpu(const struct gpu *gpu)
{
    REQUIRE(!__atomic_load_n(&gpu->device->lost, __ATOMIC_RELAXED), NVML_ERROR_GPU_IS_LOST);
    return injected(gpu->index);
}

static bool find_gpu(struct gpu *gpu, const struct sim_state *node, nvmlDevice_t handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)handles;
    if (offset >= node->device_count)
        return false;
    *gpu = gpu_of(node, (unsigned)offset);
    return true;
}

nvmlReturn_t open_gpu(struct gpu *gpu, nvmlDevice_t handle, bool arguments)
{
    const struct sim_state *node;
    TRY(open_system(&node, arguments));
    REQUIRE(find_gpu(gpu, node, handle), NVML_ERROR_INVALID_ARGUMENT);
    return check_gpu(gpu);
}

nvmlReturn_t open_live_gpu(struct gpu *gpu, nvmlDevice_t handle, bool arguments)
{
    TRY(open_gpu(gpu, handle, arguments));
    sim_settle((struct sim_state *)gpu->node); /* const is what NVML may do with it */
    return NVML_SUCCESS;
}

nvmlReturn_t open_pair(struct gpu pair[2], nvmlDevice_t first, nvmlDevice_t second, bool arguments)
{
    const struct sim_state *node;
    TRY(open_system(&node, arguments));
    REQUIRE(find_gpu(&pair[0], node, first) && find_gpu(&pair[1], node, second),
            NVML_ERROR_INVALID_ARGUMENT);
    TRY(check_gpu(&pair[0]));
    return check_gpu(&pair[1]);
}

nvmlReturn_t answer_text(char *buffer, unsigned int length, const char *text)
{
    size_t bytes = strlen(text) + 1;
    REQUIRE(bytes <= length, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(buffer, text, bytes);
    return NVML_SUCCESS;
}
