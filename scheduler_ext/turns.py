"""Whose turn it is among Python's threads: whoever answers kube-scheduler is not interrupted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["give_way", "undisturbed"]

# How long a thread may go on when another one waits. It is longer than it takes to take in a change
# that was watched: turns that end in the middle of one cost more than they bring. What takes long,
# such as a view of the whole cluster, gives way; a verb is done before its own time is over.
_GIVE_WAY_S = 0.0005
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
