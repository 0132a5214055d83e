#!/usr/bin/python3
"""A CUDA program in a pod: does what its arguments say, one after the other, and says what it saw.

It knows nothing of Aliquot; it speaks to whatever libcuda.so.1 it finds, or to the file that
CUDA_LIBRARY names. Every action prints one
line of JSON: `see`, `take=MIB`, `fill`, `burn` (endless), `burn=SECONDS`, `wait` (endless), `watch`
(endless: says again and again what `see` would), `use=NUMBER` (the GPU for what follows).
"""

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any

SUCCESS, OUT_OF_MEMORY = 0, 2
MIB = 1 << 20
FILL_MIB = 16
KERNEL_NS = 1_000_000
KERNELS_A_ROUND = 32
WATCH_S = 0.5

PTX = b"""
.version 8.0
.target sm_70
.address_size 64
.visible .entry aliquot_spin(.param .u64 duration_ns)
{
    ret;
}
"""


class Cuda:
    def __init__(self) -> None:
        self.driver = ctypes.CDLL(os.environ.get("CUDA_LIBRARY", "libcuda.so.1"))
        self.call("cuInit", 0)
        self.devices: list[int] = []
        for ordinal in range(self._value("cuDeviceGetCount", ctypes.c_int)):
            self.devices.append(self._value("cuDeviceGet", ctypes.c_int, ordinal))
        self.contexts = [
            self._value("cuDevicePrimaryCtxRetain", ctypes.c_void_p, device)
            for device in self.devices
        ]

    def call(self, name: str, *arguments: Any) -> None:
        if result := getattr(self.driver, name)(*arguments):
            raise SystemExit(f"{name} answered {result}")

    def _value(self, name: str, kind: Any, *arguments: Any) -> Any:
        out = kind()
        self.call(name, ctypes.byref(out), *arguments)
        return out.value

    def use(self, number: int) -> None:
        self.call("cuCtxSetCurrent", ctypes.c_void_p(self.contexts[number]))

    def see(self) -> list[dict[str, int]]:
        seen = []
        for number, _ in enumerate(self.devices):
            self.use(number)
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            seen.append({"total_mib": total.value // MIB, "free_mib": free.value // MIB})
        return seen

    def take(self, mib: int) -> int:
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(mib * MIB)
        return int(self.driver.cuMemAlloc_v2(ctypes.byref(address), size))

    def fill(self) -> dict[str, int]:
        taken, result = 0, SUCCESS
        while (result := self.take(FILL_MIB)) == SUCCESS:
            taken += FILL_MIB
        return {"taken_mib": taken, "refused_with": result}

    def burn(self, seconds: float) -> dict[str, int]:
        module = self._value("cuModuleLoadData", ctypes.c_void_p, PTX)
        kernel = self._value(
            "cuModuleGetFunction", ctypes.c_void_p, ctypes.c_void_p(module), b"aliquot_spin"
        )
        duration = ctypes.c_uint64(KERNEL_NS)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
        grid = (1, 1, 1, 1, 1, 1)
        end, launched = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for _ in range(KERNELS_A_ROUND):
                self.call(
                    "cuLaunchKernel", ctypes.c_void_p(kernel), *grid, 0, None, parameters, None
                )
            self.call("cuCtxSynchronize")
            launched += KERNELS_A_ROUND
        return {"launched": launched}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # pods must end quickly
    cuda = Cuda()
    cuda.use(0)
    for action in sys.argv[1:]:
        name, _, value = action.partition("=")
        saw: object
        if name == "see":
            saw = cuda.see()
            cuda.use(0)
        elif name == "use":
            cuda.use(int(value))
            saw = int(value)
        elif name == "take":
            saw = cuda.take(int(value))
        elif name == "fill":
            saw = cuda.fill()
        elif name == "burn":
            print(json.dumps({"burning": value or "on"}), flush=True)
            saw = cuda.burn(float(value or "inf"))
        elif name == "watch":
            while True:
                print(json.dumps({"see": cuda.see()}), flush=True)
                time.sleep(WATCH_S)
        elif name == "wait":
            print(json.dumps({"waiting": True}), flush=True)
            while True:
                signal.pause()
        else:
            raise SystemExit(f"there is no action {name}")
        print(json.dumps({name: saw}), flush=True)


if __name__ == "__main__":
    main()
