/* NVML by link-time symbols, or by dlsym. */
#include <dlfcn.h>
#include <stdio.h>

#include "nvml_abi.h"

#ifdef LINKED
#define FIND(name) name
#else
#define FIND(name) ((__typeof__(&name))dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), #name))
#endif

int main(int argument_count, char **arguments)
{
    unsigned count = 0;
    nvmlDevice_t device;
    nvmlMemory_t memory = {0, 0, 0};
    FIND(nvmlInit_v2)();
    FIND(nvmlDeviceGetCount_v2)(&count);
    FIND(nvmlDeviceGetHandleByIndex_v2)(count - 1, &device);
    FIND(nvmlDeviceGetMemoryInfo)(device, &memory);
    /* The last argument is the uuid of a GPU that is not in the limits. */
    const char *uuid = arguments[argument_count - 1];
    const int hidden = (int)FIND(nvmlDeviceGetHandleByUUID)(uuid, &device);
    printf("count=%u total=%llu hidden=%d\n", count, memory.total >> 20, hidden);
    return 0;
}
