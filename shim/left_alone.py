"""Calls that sound as if they took, gave back or used device memory, and why they are not hooked.

Base names: every version and every per-thread twin of a name is meant. `python -m shim.coverage`
fails when CUDA's or NVML's header has such a call that is neither here nor in hooks.def, and when
something stands here for no reason any more.
"""

__all__ = ["DRIVER", "NVML"]

DRIVER: dict[str, tuple[str, ...]] = {
    "runs on the host": ("cuLaunchHostFunc",),
    "host memory, pinned or registered; not device memory": (
        *("cuMemAllocHost", "cuMemHostAlloc", "cuMemFreeHost"),
        *("cuMemHostRegister", "cuMemHostUnregister"),
    ),
    "addresses without memory behind them": ("cuMemAddressReserve", "cuMemAddressFree"),
    "memory of another process of the container, which is charged for it": (
        *("cuIpcOpenMemHandle", "cuIpcCloseMemHandle"),
        *("cuMemImportFromShareableHandle", "cuMemPoolImportPointer"),
    ),
    "hands out a name for memory that is charged already": (
        *("cuIpcGetMemHandle", "cuMemExportToShareableHandle"),
        *("cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle"),
    ),
    "a view of an import that is charged as a whole": (
        *("cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray"),
    ),
    "managed memory is charged in full when it is allocated, wherever its pages are": (
        *("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"),
        "cuStreamAttachMemAsync",
    ),
    "has no memory of its own: what is bound to it is charged": (
        *("cuMulticastCreate", "cuMulticastAddDevice", "cuLogicalEndpointCreate"),
        *("cuLogicalEndpointDestroy", "cuLogicalEndpointImport", "cuLogicalEndpointExport"),
        *("cuLogicalEndpointBindAddr", "cuLogicalEndpointBindMem", "cuLogicalEndpointUnbind"),
        *("cuLogicalEndpointIdReserve", "cuLogicalEndpointIdRelease"),
    ),
    "describes work; its memory is charged when the graph is launched or uploaded": (
        *("cuGraphCreate", "cuGraphClone", "cuGraphDestroy", "cuGraphDestroyNode"),
        *("cuGraphAddNode", "cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode"),
        *("cuGraphAddKernelNode", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode"),
        *("cuGraphAddHostNode", "cuGraphAddChildGraphNode", "cuGraphAddEmptyNode"),
        *("cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode", "cuGraphAddBatchMemOpNode"),
        *("cuGraphAddExternalSemaphoresSignalNode", "cuGraphAddExternalSemaphoresWaitNode"),
        *("cuGraphAddDependencies", "cuGraphConditionalHandleCreate"),
        *("cuGraphMemAllocNodeGetParams", "cuGraphMemFreeNodeGetParams"),
        *("cuGraphExecUpdate", "cuGraphRetainUserObject", "cuGraphReleaseUserObject"),
        *("cuUserObjectCreate", "cuUserObjectRetain", "cuUserObjectRelease"),
    ),
    "part of what a context takes": (
        *("cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy"),
        *("cuGreenCtxStreamCreate", "cuEventCreate", "cuEventDestroy", "cuIpcOpenEventHandle"),
        *("cuTexObjectCreate", "cuTexObjectDestroy", "cuSurfObjectCreate", "cuSurfObjectDestroy"),
        *("cuTexRefCreate", "cuTexRefDestroy", "cuImportExternalSemaphore"),
        *("cuDestroyExternalSemaphore", "cuCtxResetPersistingL2Cache"),
    ),
    "links code on the host; loading the result is charged": (*("cuLinkCreate", "cuLinkDestroy"),),
    "only asks": (
        *("cuFuncIsLoaded", "cuModuleGetLoadingMode"),
        *("cuMemGetAllocationGranularity", "cuMemGetAllocationPropertiesFromHandle"),
        *("cuCheckpointProcessGetRestoreThreadId", "cuGraphNodeFindInClone"),
    ),
    "tables private to NVIDIA's own libraries; none is known that allocates": ("cuGetExportTable",),
    "memory of a graphics interface, which takes it and is not hooked": (
        *("cuGraphicsResourceGetMappedEglFrame", "cuGraphicsResourceGetMappedMipmappedArray"),
        *("cuGraphicsResourceGetMappedPointer", "cuGraphicsSubResourceGetMappedArray"),
        *("cuGraphicsMapResources", "cuGraphicsUnmapResources", "cuGraphicsUnregisterResource"),
        *("cuGraphicsResourceSetMapFlags", "cuGraphicsGLRegisterBuffer"),
        *("cuGraphicsGLRegisterImage", "cuGraphicsEGLRegisterImage"),
        *("cuGraphicsVDPAURegisterOutputSurface", "cuGraphicsVDPAURegisterVideoSurface"),
        *("cuGLMapBufferObject", "cuGLMapBufferObjectAsync", "cuGLUnmapBufferObject"),
        *("cuGLUnmapBufferObjectAsync", "cuGLRegisterBufferObject", "cuGLUnregisterBufferObject"),
        *("cuGLSetBufferObjectMapFlags", "cuEventCreateFromEGLSync"),
        *("cuEGLStreamConsumerConnect", "cuEGLStreamConsumerConnectWithFlags"),
        *("cuEGLStreamConsumerDisconnect", "cuEGLStreamConsumerReleaseFrame"),
        *("cuEGLStreamProducerConnect", "cuEGLStreamProducerDisconnect"),
    ),
    "sets memory aside on the host; the process stays charged for what it will have again": (
        *("cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore"),
        *("cuCheckpointProcessLock", "cuCheckpointProcessUnlock", "cuCheckpointProcessGetState"),
        "cuCheckpointOperationComplete",
    ),
    "calls back; takes no device memory": (
        *("cuCoredumpRegisterCompleteCallback", "cuCoredumpRegisterStartCallback"),
        *("cuCoredumpDeregisterCompleteCallback", "cuCoredumpDeregisterStartCallback"),
        *("cuDeviceRegisterAsyncNotification", "cuDeviceUnregisterAsyncNotification"),
        *("cuLogsRegisterCallback", "cuLogsUnregisterCallback"),
    ),
    "fills a descriptor on the host": (
        *("cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide", "cuTensorMapEncodeTiled"),
        "cuTensorMapReplaceAddress",
    ),
}

NVML: dict[str, tuple[str, ...]] = {
    "an aperture of the bus or of a security mode, not the memory that programs allocate": (
        *("nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetConfComputeMemSizeInfo"),
        *("nvmlDeviceGetConfComputeProtectedMemoryUsage", "nvmlDeviceGetMemoryLimits"),
        *("nvmlDeviceSetMemoryLimits",),
    ),
    "properties of the memory, not amounts of it": (
        *("nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMemoryErrorCounter"),
        *("nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetSupportedMemoryClocks"),
        *("nvmlDeviceResetMemoryLockedClocks", "nvmlDeviceSetMemoryLockedClocks"),
        *("nvmlDeviceGetUnrepairableMemoryFlag",),
    ),
    "asked by pid, which a program knows only of its own namespace": (
        *("nvmlSystemGetProcessName",),
    ),
    "accounting is off unless an administrator turns it on": (
        *("nvmlDeviceGetAccountingBufferSize", "nvmlDeviceGetAccountingMode"),
        *("nvmlDeviceSetAccountingMode", "nvmlDeviceClearAccountingPids"),
    ),
    "of a handle, and hidden GPUs have none": (
        *("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetMigDeviceHandleByIndex"),
        *("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "nvmlDeviceIsMigDeviceHandle"),
    ),
    "nothing that a container could use: GPUs that the driver itself leaves out": (
        *("nvmlGetExcludedDeviceCount",),
    ),
    "of another kind of sharing (virtual machines, MIG, chassis units), which has no shim": (
        *("nvmlDeviceGetVgpuProcessUtilization", "nvmlDeviceGetVgpuProcessesUtilizationInfo"),
        *("nvmlVgpuInstanceGetAccountingMode", "nvmlVgpuInstanceGetAccountingPids"),
        *("nvmlVgpuInstanceGetAccountingStats", "nvmlVgpuInstanceClearAccountingPids"),
        *("nvmlDeviceGetMaxMigDeviceCount", "nvmlUnitGetCount", "nvmlUnitGetHandleByIndex"),
        *("nvmlUnitGetDevices",),
    ),
}
