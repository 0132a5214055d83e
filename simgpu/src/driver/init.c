/* Initialisation: the node is opened, and the program's devices are chosen. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "array.h"
#include "context.h"
#include "copy.h"
#include "driver.h"
#include "host.h"
#include "ipc.h"
#include "memory.h"
#include "pool.h"
#include "virtual.h"
#include "visible.h"

struct driver driver;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* What NVIDIA's driver answers without a device is not known here: a node decides, or this. */
enum { VERSION_WITHOUT_NODE = 13040 };

static void say(const char *format, va_list arguments)
{
    char line[1024];
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "simulated GPU: %s\n", line);
}

void driver_log(const char *format, ...)
{
    const char *wanted = getenv("ALIQUOT_SIM_LOG");
    if (wanted == NULL || *wanted == '\0' || *wanted == '0')
        return;
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void driver_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

/*
 * A forked child has nothing of its parent's: what the parent holds on the node is the parent's,
 * and threads that held locks are not there to release them.
 */
static void forget_in_child(void)
{
    driver = (struct driver){.ready = false};
    opening = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    streams_forget();
    arrays_forget();
    mipmaps_forget();
    textures_forget();
    externals_forget();
    greens_forget();
    copies_forget();
    ipc_forget();
    virtual_forget();
    pools_forget();
    contexts_forget();
    host_forget();
    memory_forget();
}

static CUresult open_node(void)
{
    const char *why = "no reason was given";
    driver.node = sim_node(&why);
    if (driver.node != NULL)
        return CUDA_SUCCESS;
    const char *path = getenv("ALIQUOT_SIM_STATE");
    if (path == NULL || *path == '\0') {
        driver_log("%s", why);
        return CUDA_ERROR_NO_DEVICE;
    }
    driver_complain("%s", why);
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

static CUresult choose_devices(void)
{
    unsigned indices[SIM_DEVICES];
    const unsigned count = visible_devices(driver.node, getenv("CUDA_DEVICE_ORDER"),
                                           getenv("CUDA_VISIBLE_DEVICES"), indices);
    if (count == 0) {
        driver_log("CUDA_VISIBLE_DEVICES hides all %u devices", driver.node->device_count);
        return CUDA_ERROR_NO_DEVICE;
    }
    for (unsigned ordinal = 0; ordinal < count; ordinal++) {
        const struct sim_device *shared = &driver.node->devices[indices[ordinal]];
        driver.devices[ordinal] = (struct device){
            .index = indices[ordinal],
            .ordinal = (CUdevice)ordinal,
            .profile = &shared->profile,
            .lost = &shared->lost,
            .armed = &shared->armed,
        };
    }
    driver.device_count = count;
    return CUDA_SUCCESS;
}

static CUresult open_addresses(void)
{
    uint64_t device_bytes = 0;
    for (unsigned index = 0; index < driver.node->device_count; index++)
        device_bytes += driver.node->devices[index].profile.memory_bytes;
    if (space_open(device_bytes))
        return CUDA_SUCCESS;
    driver_complain("no address space for device memory; is there a limit (ulimit -v)?");
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult initialise(void)
{
    static bool watching_forks;
    TRY(open_node());
    TRY(choose_devices());
    TRY(open_addresses());
    driver.null_mode = driver.node->null_mode != 0;
    if (!watching_forks)
        pthread_atfork(NULL, NULL, forget_in_child);
    watching_forks = true;
    __atomic_store_n(&driver.ready, true, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

ENTRY cuInit(unsigned flags)
{
    REQUIRE(flags == 0);
    pthread_mutex_lock(&opening);
    const CUresult result = driver.ready ? CUDA_SUCCESS : initialise();
    pthread_mutex_unlock(&opening);
    return result;
}

ENTRY cuDriverGetVersion(int *version)
{
    REQUIRE(version != NULL);
    const char *why = NULL;
    const struct sim_state *node = sim_node(&why);
    *version = node != NULL ? (int)node->cuda_version : VERSION_WITHOUT_NODE;
    return CUDA_SUCCESS;
}
