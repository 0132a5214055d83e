"""The CUDA program in the demo's pods: takes memory and launches kernels as it is told.

It knows nothing of Aliquot or of the simulator; it speaks to whatever libcuda.so.1 it finds. Each
line on standard input is a command, each is answered by one line of JSON; `end` or the end of the
input ends it. Between commands it launches kernels, as long as it is told to `work`.
"""

import ctypes
import json
import os
import select
import sys

MIB = 1 << 20
SUCCESS, OUT_OF_MEMORY = 0, 2
CHUNKS_MIB = (1024, 64, 4, 1)
"""Steps in which it takes memory: larger ones first, smaller ones up to the very edge."""
KERNEL_US = 1000
PTX = f"""\
.version 8.0
.target sm_70
.address_size 64
.visible .entry aliquot_spin_us_{KERNEL_US}()
{{
    ret;
}}
"""


class Gpu:
    """The first GPU that is to be seen, with one kernel that is busy for a while."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context, module, self._kernel = (ctypes.c_void_p() for _ in range(3))
        self._do("cuInit", 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._do("cuCtxSetCurrent", context)
        self._do("cuModuleLoadData", ctypes.byref(module), PTX.encode())
        name = f"aliquot_spin_us_{KERNEL_US}".encode()
        self._do("cuModuleGetFunction", ctypes.byref(self._kernel), module, name)

    def total_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value

    def allocate(self, size_bytes: int) -> int:
        """The driver's answer."""
        address = ctypes.c_uint64()
        result = self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return int(result)

    def launch(self) -> None:
        shape = [ctypes.c_uint(number) for number in (108, 1, 1, 256, 1, 1, 0)]
        self._do("cuLaunchKernel", self._kernel, *shape, None, None, None)

    def _do(self, name: str, *arguments: object) -> None:
        result = getattr(self._cuda, name)(*arguments)
        if result != SUCCESS:
            sys.exit(f"{name} answered {result}")


def take(gpu: Gpu, most_mib: float) -> dict[str, int]:
    """Takes memory until it has enough, or until even the smallest piece is refused."""
    taken_mib, result = 0, SUCCESS
    for chunk_mib in CHUNKS_MIB:
        while taken_mib + chunk_mib <= most_mib:
            result = gpu.allocate(chunk_mib * MIB)
            if result != SUCCESS:
                break
            taken_mib += chunk_mib
    return {"taken_bytes": taken_mib * MIB, "result": result}


def main() -> None:
    gpu, works, text = Gpu(), False, b""
    say({"total_bytes": gpu.total_bytes()})
    while True:
        if select.select([0], [], [], 0 if works else None)[0]:
            read = os.read(0, 4096)
            text += read
            *lines, text = text.split(b"\n")
            for line in lines:
                match line.decode().split():
                    case ["take", mib]:
                        say(take(gpu, float(mib)))
                    case ["work" | "rest" as word]:
                        works = word == "work"
                        say({})
                    case _:
                        return
            if not read:
                return
        if works:
            gpu.launch()


def say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
