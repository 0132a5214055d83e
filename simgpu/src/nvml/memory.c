/* How much memory a device has, and how much of it is taken. */
#include "session.h"

/* What all processes hold. Never more than there is, whatever the moment of reading. */
static uint64_t used_bytes(const struct gpu *gpu)
{
    uint64_t used = __atomic_load_n(&gpu->device->used_bytes, __ATOMIC_RELAXED);
    return used < gpu->profile->memory_bytes ? used : gpu->profile->memory_bytes;
}

ENTRY nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, memory));
    memory->total = gpu.profile->memory_bytes;
    memory->used = used_bytes(&gpu);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

/* The simulated driver keeps nothing for itself: a profile's memory is what programs can have. */
ENTRY nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    struct gpu gpu;
    TRY(open_live_gpu(&gpu, handle, memory));
    REQUIRE_VERSION(memory, nvmlMemory_v2_t, 2);
    memory->total = gpu.profile->memory_bytes;
    memory->reserved = 0;
    memory->used = used_bytes(&gpu);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

/* The window through which the CPU reaches the memory: as large as the memory, rounded up. */
ENTRY nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *window)
{
    struct gpu gpu;
    TRY(open_gpu(&gpu, handle, window));
    window->bar1Total = UINT64_C(256) << 20;
    while (window->bar1Total < gpu.profile->memory_bytes)
        window->bar1Total *= 2;
    window->bar1Used = UINT64_C(1) << 20;
    window->bar1Free = window->bar1Total - window->bar1Used;
    return NVML_SUCCESS;
}

GETTER(nvmlDeviceGetMemoryBusWidth, unsigned int, gpu.profile->memory_bus_bits)
