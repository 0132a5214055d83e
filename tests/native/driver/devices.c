/* Devices: what they are called, where they are, what they can do. */
#include "check.h"

static int attribute(CUdevice device, CUdevice_attribute attribute)
{
    int value = -1;
    OK(cuDeviceGetAttribute(&value, attribute, device));
    return value;
}

CASE(devices_answer_for_themselves)
{
    OK(cuInit(0));
    int version = 0;
    OK(cuDriverGetVersion(&version));
    CHECK(version >= 12000);
    int count = 0;
    OK(cuDeviceGetCount(&count));
    CHECK_EQUAL(count, 2);
    CUdevice device = -1;
    OK(cuDeviceGet(&device, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
    char name[64];
    OK(cuDeviceGetName(name, sizeof name, 0));
    CHECK(strstr(name, "H100") != NULL);
    OK(cuDeviceGetName(name, 7, 0));
    CHECK(strcmp(name, "NVIDIA") == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, 0, 0));
    CUuuid first;
    CUuuid second;
    OK(cuDeviceGetUuid_v2(&first, 0));
    OK(cuDeviceGetUuid(&second, 1));
    CHECK(memcmp(&first, &second, sizeof first) != 0);
    char place[32];
    OK(cuDeviceGetPCIBusId(place, sizeof place, 1));
    OK(cuDeviceGetByPCIBusId(&device, place));
    CHECK_EQUAL(device, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(place, 5, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&device, "ffff:ff:00.0"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&device, "hello"));
}

CASE(attributes_fit_the_model)
{
    OK(cuInit(0));
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), 2048);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 227 * KIB);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
    CHECK_EQUAL(attribute(0, CU_DEVICE_ATTRIBUTE_INTEGRATED), 0);
    for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; i++)
        attribute(1, (CUdevice_attribute)i);
    int value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
    CUdevprop properties;
    OK(cuDeviceGetProperties(&properties, 0));
    CHECK_EQUAL(properties.SIMDWidth, 32);
    int major = 0;
    int minor = 0;
    OK(cuDeviceComputeCapability(&major, &minor, 0));
    CHECK_EQUAL(major, 9);
}

CASE(peers_know_each_other)
{
    OK(cuInit(0));
    int value = -1;
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQUAL(value, 1);
    OK(cuDeviceCanAccessPeer(&value, 0, 0));
    CHECK_EQUAL(value, 0);
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    CHECK_EQUAL(value, 1);
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1, 0));
    CHECK_EQUAL(value, 1);
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)77, 0, 1));
}

/* Prints the program's devices, for tests of the variables that choose them. */
CASE(list_devices)
{
    int count = 0;
    const CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS) {
        puts(error_name(result));
        return;
    }
    OK(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        char name[64];
        char place[32];
        OK(cuDeviceGetName(name, sizeof name, i));
        OK(cuDeviceGetPCIBusId(place, sizeof place, i));
        printf("%s %s\n", place, name);
    }
}
