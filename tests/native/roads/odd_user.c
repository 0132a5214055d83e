/* Uses the odd driver by its own lookup, and prints what the account makes of it. */
#include <dlfcn.h>
#include <stdio.h>

#include "cuda_shim_abi.h"

static __typeof__(&cuGetProcAddress_v2) ask;

static void *find(const char *base)
{
    void *found = NULL;
    ask(base, &found, 12000, 0, NULL);
    return found;
}

static size_t used_mib(void)
{
    size_t free = 0;
    size_t total = 0;
    ((__typeof__(&cuMemGetInfo_v2))find("cuMemGetInfo"))(&free, &total);
    return (total - free) >> 20;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr address;
    size_t pitch;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    ask = (__typeof__(ask))dlsym(driver, "cuGetProcAddress_v2");
    ((__typeof__(&cuInit))find("cuInit"))(0);
    ((__typeof__(&cuCtxCreate_v2))find("cuCtxCreate"))(&context, 0, 0);
    const size_t before = used_mib();
    ((__typeof__(&cuMemAlloc_v2))find("cuMemAlloc"))(&address, 64 << 20);
    printf("alloc takes %zu\n", used_mib() - before);
    ((__typeof__(&cuMemFree_v2))find("cuMemFree"))(address);
    ((__typeof__(&cuMemAllocManaged))find("cuMemAllocManaged"))(&address, 64 << 20, 1);
    printf("managed takes %zu\n", used_mib() - before);
    ((__typeof__(&cuMemFree_v2))find("cuMemFree"))(address);
    ((__typeof__(&cuMemAllocPitch_v2))find("cuMemAllocPitch"))(&address, &pitch, 1 << 20, 64, 4);
    printf("pitch takes %zu\n", used_mib() - before);
    ((__typeof__(&cuMemFree_v2))find("cuMemFree"))(address);
    printf("left %zu\n", used_mib() - before);
    void *private = NULL;
    ask("cuMemAlloc", &private, 12010, 0, NULL);
    ((__typeof__(&cuMemAlloc_v2))private)(&address, 64 << 20);
    printf("a private address takes %zu\n", used_mib() - before);
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const int newer = (int)ask("cuMemAlloc", &private, 99000, 0, &status);
    printf("a newer one: %d, status %d, %s\n", newer, (int)status, private ? "there" : "none");
    return 0;
}
