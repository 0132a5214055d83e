"""Every allocating call of cuda-bindings: too much of it, then a little."""

import os

from cuda.bindings import driver as cuda

TOO_MUCH = 2 << 30
LITTLE = 4 << 20


def made(answer):
    error, *values = answer
    assert error == cuda.CUresult.CUDA_SUCCESS, error
    return values[0] if len(values) == 1 else values


def properties(kind):
    properties = kind()
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return properties


def create(size):
    allocation = properties(cuda.CUmemAllocationProp)
    allocation.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    return cuda.cuMemCreate(size, allocation, 0)


def array(size):
    descriptor = cuda.CUDA_ARRAY_DESCRIPTOR()
    descriptor.Width, descriptor.Height = 16384, size // (16384 * 4)
    descriptor.Format, descriptor.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return cuda.cuArrayCreate(descriptor)


def array3d(size):
    descriptor = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.Depth = 1024, 1024, size >> 22
    descriptor.Format, descriptor.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return cuda.cuArray3DCreate(descriptor)


def mipmap(size):
    descriptor = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height = 16384, size // (16384 * 4)
    descriptor.Format, descriptor.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return cuda.cuMipmappedArrayCreate(descriptor, 2)


def from_pool(size):
    pool = properties(cuda.CUmemPoolProps)
    pool.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    return cuda.cuMemAllocFromPoolAsync(size, made(cuda.cuMemPoolCreate(pool)), 0)


def graph(size):
    graph = made(cuda.cuGraphCreate(0))
    node = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    node.poolProps = properties(cuda.CUmemPoolProps)
    node.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    node.bytesize = size
    made(cuda.cuGraphAddMemAllocNode(graph, None, 0, node))
    return cuda.cuGraphLaunch(made(cuda.cuGraphInstantiate(graph, 0)), 0)


def captured(size):
    stream = made(cuda.cuStreamCreate(0))
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    made(cuda.cuStreamBeginCapture(stream, mode))
    made(cuda.cuMemFreeAsync(made(cuda.cuMemAllocAsync(size, stream)), stream))
    return cuda.cuGraphLaunch(
        made(cuda.cuGraphInstantiate(made(cuda.cuStreamEndCapture(stream)), 0)), stream
    )


def external(size):
    descriptor = cuda.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    descriptor.type = cuda.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
    descriptor.handle.fd = os.memfd_create("external")
    os.ftruncate(descriptor.handle.fd, size)
    descriptor.size = size
    return cuda.cuImportExternalMemory(descriptor)


CALLS = {
    "cuMemAlloc": cuda.cuMemAlloc,
    "cuMemAllocManaged": lambda size: cuda.cuMemAllocManaged(
        size, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    ),
    "cuMemAllocPitch": lambda size: cuda.cuMemAllocPitch(4096, size // 4096, 4),
    "cuMemAllocAsync": lambda size: cuda.cuMemAllocAsync(size, 0),
    "cuMemAllocFromPoolAsync": from_pool,
    "cuMemCreate": create,
    "cuArrayCreate": array,
    "cuArray3DCreate": array3d,
    "cuMipmappedArrayCreate": mipmap,
    "cuGraphAddMemAllocNode": graph,
    "captured cuMemAllocAsync": captured,
    "cuImportExternalMemory": external,
}

made(cuda.cuInit(0))
device = made(cuda.cuDeviceGet(0))
made(cuda.cuCtxSetCurrent(made(cuda.cuDevicePrimaryCtxRetain(device))))
print("sees", made(cuda.cuDeviceTotalMem(device)) >> 20, made(cuda.cuMemGetInfo())[1] >> 20)
for name, call in CALLS.items():
    print(name, call(TOO_MUCH)[0].name, call(LITTLE)[0].name)
