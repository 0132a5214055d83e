"""A CUDA program for the demo: takes device memory until the driver refuses, then holds it.

It knows nothing of Aliquot or the simulator; it speaks to whatever libcuda.so.1 it finds. One
line of JSON on standard output says what it saw; it ends when its standard input does.
"""

import ctypes
import json
import sys

CHUNK_BYTES = 256 << 20
SUCCESS, OUT_OF_MEMORY = 0, 2


def main() -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    free_bytes, total_bytes = ctypes.c_size_t(), ctypes.c_size_t()
    for result in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(total_bytes)),
    ):
        if result != SUCCESS:
            print(f"the driver answered {result}", file=sys.stderr)
            return 1
    taken_bytes, result = 0, SUCCESS
    address = ctypes.c_uint64()
    while result == SUCCESS:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(CHUNK_BYTES))
        taken_bytes += CHUNK_BYTES if result == SUCCESS else 0
    seen = {
        "total_bytes": total_bytes.value,
        "taken_bytes": taken_bytes,
        "refused_with": result,
        "refused_in_time": result == OUT_OF_MEMORY,
    }
    print(json.dumps(seen), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
