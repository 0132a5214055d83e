"""A CUDA program for `aliquot top` to look at: holds memory and keeps its GPU busy for a while.

`python top_worker.py MEMORY_MIB BUSY_MS PAUSE_MS` launches kernels that take BUSY_MS together, then
pauses, again and again until its standard input ends; a line on standard output says that it has
begun. It takes whatever libcuda.so.1 it finds, and goes on when memory is refused.
"""

import ctypes
import select
import sys

MIB = 1 << 20
CHUNK_MIB = 256
KERNEL = "aliquot_spin_us_1000"
PTX = f".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry {KERNEL}() {{ ret; }}\n"


def main(memory_mib: int, busy_ms: int, pause_ms: int) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")

    def do(name: str, *arguments: object) -> None:
        if (result := getattr(cuda, name)(*arguments)) != 0:
            sys.exit(f"{name} answered {result}")

    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    do("cuInit", 0)
    do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    do("cuCtxSetCurrent", context)
    do("cuModuleLoadData", ctypes.byref(module), PTX.encode())
    do("cuModuleGetFunction", ctypes.byref(kernel), module, KERNEL.encode())
    address = ctypes.c_uint64()
    for _ in range(memory_mib // CHUNK_MIB):
        if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(CHUNK_MIB * MIB)) != 0:
            break
    print("begun", flush=True)
    shape = [ctypes.c_uint(number) for number in (108, 1, 1, 256, 1, 1, 0)]
    while not select.select([0], [], [], pause_ms / 1000)[0]:
        for _ in range(busy_ms):
            do("cuLaunchKernel", kernel, *shape, None, None, None)
        do("cuCtxSynchronize")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
