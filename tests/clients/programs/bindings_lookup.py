"""Which driver functions cuda-bindings has found, and under which symbol; one line for each."""

import ctypes
import sys

from cuda.bindings._internal import driver

library = ctypes.CDLL("libcuda.so.1")


def address(symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None


for name, pointer in driver._inspect_function_pointers().items():
    symbol = name.lstrip("_")
    found = [
        candidate
        for candidate in (symbol, f"{symbol}_ptds", f"{symbol}_ptsz")
        if pointer and pointer == address(candidate)
    ]
    print(symbol, *found)
sys.exit(0)
