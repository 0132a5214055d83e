"""Calls NVML's entries at random from several threads; run as a program on a simulated node.

Arguments follow the declared types, so that nothing is asked to write where there is no room: any
handle, small numbers, buffers with room for what small numbers can ask for, and NULL.
"""

import ctypes
import random
import re
import sys
import threading
from pathlib import Path

CALLS = Path(__file__).parents[2] / "shim" / "abi" / "nvml_calls.h"
BUFFER_BYTES = 1 << 16
LARGEST_NUMBER = 64
NULL = ctypes.c_void_p(0)


def prototypes() -> dict[str, list[str]]:
    text = re.sub(r"/\*.*?\*/", "", CALLS.read_text(), flags=re.S)
    found = re.findall(r"^nvmlReturn_t (nvml\w+)\((.*?)\);", text, re.S | re.M)
    return {name: [" ".join(kind.split()) for kind in kinds.split(",")] for name, kinds in found}


class Storm:
    """One thread's calls."""

    def __init__(self, library: ctypes.CDLL, seed: int) -> None:
        self.library = library
        self.random = random.Random(seed)
        self.buffers = [ctypes.create_string_buffer(BUFFER_BYTES) for _ in range(6)]
        self.handles = [ctypes.c_void_p() for _ in range(4)]
        self.sets = [ctypes.c_void_p()]
        self.answers: dict[int, int] = {}

    def begin(self) -> None:
        self.library.nvmlInit_v2()
        for index, handle in enumerate(self.handles):
            self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))

    def number(self) -> int:
        return self.random.choice([0, 1, 2, 3, 10, 20, self.random.randrange(LARGEST_NUMBER)])

    def buffer(self, number: int) -> object:
        """What an entry finds there: a count, the version of a struct, a text, or nothing."""
        buffer = self.buffers[number]
        # Kept short of what a count in front of a list may claim.
        start = self.random.choice([0, 1, 5, LARGEST_NUMBER])
        versions = [1 << 24 | size for size in (8, 12, 24, 40, 64, 84)] + [2 << 24 | 40]
        if self.random.random() < 0.3:
            start = self.random.choice(versions)
        ctypes.memset(buffer, 0, 256)
        ctypes.memmove(buffer, start.to_bytes(8, "little"), 8)
        return NULL if self.random.random() < 0.05 else buffer

    def argument(self, kind: str, number: int) -> object:
        if kind == "nvmlDevice_t":
            return self.random.choice([*self.handles, *self.handles, NULL, ctypes.c_void_p(3)])
        if kind == "nvmlEventSet_t":
            return self.random.choice(self.sets)
        if "*" in kind:
            return self.buffer(number)
        if kind == "unsigned long long":
            return ctypes.c_ulonglong(self.random.choice([0, 8, 2**62]))
        return ctypes.c_uint(self.number())

    def call(self, name: str, kinds: list[str]) -> None:
        arguments = [] if kinds == ["void"] else [self.argument(*k) for k in _numbered(kinds)]
        answer = getattr(self.library, name)(*arguments)
        self.answers[answer] = self.answers.get(answer, 0) + 1


def _numbered(kinds: list[str]) -> list[tuple[str, int]]:
    return [(kind, number) for number, kind in enumerate(kinds)]


def weather(library: ctypes.CDLL, seed: int, calls: int, totals: list[dict[int, int]]) -> None:
    storm = Storm(library, seed)
    storm.begin()
    # Lists that start with a pointer or hold one in a struct cannot be made up from types alone.
    left_out = {"nvmlShutdown", "nvmlDeviceGetProcessesUtilizationInfo"}
    left_out |= {"nvmlDeviceGetRunningProcessDetailList"}
    entries = [item for item in prototypes().items() if item[0] not in left_out]
    for _ in range(calls):
        storm.call(*storm.random.choice(entries))
    library.nvmlShutdown()
    totals.append(storm.answers)


def main() -> None:
    seed, thread_count, calls = map(int, sys.argv[1:])
    library = ctypes.CDLL("libnvidia-ml.so.1")
    totals: list[dict[int, int]] = []
    threads = [
        threading.Thread(target=weather, args=(library, seed + number, calls, totals))
        for number in range(thread_count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sums: dict[int, int] = {}
    for answers in totals:
        for answer, count in answers.items():
            sums[answer] = sums.get(answer, 0) + count
    print(sums)


if __name__ == "__main__":
    main()
