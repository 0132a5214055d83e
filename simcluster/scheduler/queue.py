"""Pods that wait for their turn: the important first, and after a failure not too soon again."""

from dataclasses import dataclass

__all__ = ["Queue"]

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
"""kube-scheduler's defaults."""


@dataclass(slots=True)
class _Entry:
    priority: int
    added_s: float
    attempts: int = 0
    not_before_s: float = 0.0
    hopeful: bool = True
    """Something has happened since it was found to fit nowhere."""


class Queue:
    """By uid; times are the caller's. A pod that failed is tried when something has happened in the
    cluster, and not before its pause is over."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._stirs = 0

    def add(self, uid: str, priority: int, now_s: float) -> None:
        if uid not in self._entries:
            self._entries[uid] = _Entry(priority, now_s)

    def remove(self, uid: str) -> None:
        self._entries.pop(uid, None)

    def stir(self, uid: str | None = None) -> None:
        """This pod, or everybody, may have a better chance now."""
        self._stirs += 1
        for each in self._entries.values() if uid is None else [self._entries.get(uid)]:
            if each is not None:
                each.hopeful = True

    def next(self, now_s: float) -> tuple[str, int] | None:
        """Whose turn it is, and a mark for `failed`."""
        due = [
            (-each.priority, each.added_s, uid)
            for uid, each in self._entries.items()
            if each.hopeful and each.not_before_s <= now_s
        ]
        return (min(due)[2], self._stirs) if due else None

    def next_s(self) -> float | None:
        """When it will be somebody's turn if nothing happens."""
        hopeful = [each.not_before_s for each in self._entries.values() if each.hopeful]
        return min(hopeful, default=None)

    def failed(self, uid: str, mark: int, now_s: float, *, again: bool = False) -> None:
        """`again`: not because it fits nowhere, so that nothing has to happen before."""
        if uid not in self._entries:
            return
        entry = self._entries[uid]
        pause_s = min(FIRST_PAUSE_S * 2**entry.attempts, LONGEST_PAUSE_S)
        entry.attempts += 1
        entry.not_before_s = now_s + pause_s
        # What happened during its turn may be what it needs.
        entry.hopeful = again or self._stirs != mark
