"""Keeps the agent small: memory that many threads once needed goes back to the system."""

import ctypes
import gc

__all__ = ["give_back", "limit_arenas"]

M_ARENA_MAX = -8
"""Of glibc's mallopt."""

_libc = ctypes.CDLL(None)


def limit_arenas() -> None:
    """One heap for all threads, before there are any: by default each thread may get its own, and
    what was once large in each of them stays."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Returns free memory. What is alive by now lives long, and need not be looked at again by
    the garbage collector."""
    gc.collect()
    gc.freeze()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
