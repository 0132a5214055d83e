"""A CUDA program for containers: does on standard input's command what a test wants to see."""

import sys

from cuda.bindings import driver as cuda

MIB = 1 << 20


def ask(answer):
    error, *values = answer
    if error != cuda.CUresult.CUDA_SUCCESS:
        return error.name
    return " ".join(str(int(value) // MIB) for value in values) or "done"


def main() -> None:
    kept = []
    (error,) = cuda.cuInit(0)
    print(error.name, flush=True)
    if error != cuda.CUresult.CUDA_SUCCESS:
        return
    cuda.cuDevicePrimaryCtxRetain(0)
    _, context = cuda.cuDevicePrimaryCtxRetain(0)
    cuda.cuCtxSetCurrent(context)
    for line in sys.stdin:
        match line.split():
            case ["take", mib]:
                error, address = cuda.cuMemAlloc(int(mib) * MIB)
                kept.append(address)
                print(error.name, flush=True)
            case ["total"]:
                print(ask(cuda.cuDeviceTotalMem(0)), flush=True)
            case ["gpus"]:
                print(int(cuda.cuDeviceGetCount()[1]), flush=True)


if __name__ == "__main__":
    main()
