/*
 * Entries of the driver that only the shim needs: the oldest versions, with 32-bit addresses and
 * sizes, and contexts that share a device with a graphics interface.
 */
#pragma once

#include "cuda_exec_abi.h"

typedef unsigned int CUdeviceptr_v1;

typedef struct {
    unsigned int Width;
    unsigned int Height;
    CUarray_format Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    unsigned int Width;
    unsigned int Height;
    unsigned int Depth;
    CUarray_format Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned bytes);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width_bytes,
                         unsigned height, unsigned element_bytes);
CUresult cuMemFree(CUdeviceptr_v1 address);
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned *bytes, CUmodule module,
                           const char *name);
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *description);
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *description);

/* VDPAU's handles are 32-bit numbers, its way of finding functions a function. */
typedef uint32_t VdpDevice;
typedef int VdpGetProcAddress(VdpDevice device, uint32_t function, void **address);

CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device, VdpDevice vdp,
                          VdpGetProcAddress *find);
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, VdpDevice vdp,
                             VdpGetProcAddress *find);
