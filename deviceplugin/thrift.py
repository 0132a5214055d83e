"""Keeps the agent small: memory that many threads once needed goes back to the system."""

import ctypes
import gc

__all__ = ["give_back", "limit_heaps", "settle"]

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
"""Of glibc's mallopt."""

LARGE_BYTES = 128 << 10
"""What is larger has pages of its own, which go back as soon as it is freed: the kubelet's lists
and its checkpoint. It is glibc's own figure, which it would raise unless it is set."""

YOUNG_OBJECTS = 20_000
"""How many new objects make the garbage collector look. Each of the kubelet's lists makes thousands
that go again by themselves; looking at every 700, as by default, would only stop all threads."""

_libc = ctypes.CDLL(None)


def limit_heaps() -> None:
    """One heap for all threads, before there are any: by default each thread may get its own, and
    what was once large in each of them stays."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(M_ARENA_MAX, 1)
        _libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def settle() -> None:
    """Once after the start: what is alive by now lives long, and the garbage collector need not
    look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    give_back()


def give_back() -> None:
    """Returns free memory to the system."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
