"""Whose turn it is among Python's threads: whoever answers kube-scheduler is not interrupted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["give_way", "undisturbed"]

# How long a thread may go on when another one waits. What is watched gives way to a verb soon; the
# verb is done before its own time is over.
_GIVE_WAY_S = 0.0001
_UNDISTURBED_S = 0.005


def give_way() -> None:
    """From now on, in all threads."""
    sys.setswitchinterval(_GIVE_WAY_S)


@contextmanager
def undisturbed() -> Iterator[None]:
    """For one thread at a time: whoever uses it holds a lock."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
