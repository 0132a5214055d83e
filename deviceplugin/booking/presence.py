"""How long allocations have been there and whether the kubelet has ever listed them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from deviceplugin.booking.ledger import Allocation

__all__ = ["Presence"]

UNRECORDED_S = 10.0
"""After this the kubelet has surely written down what we answered."""
HALF_OPEN_S = 1.0
"""A container's calls follow each other at once; a half that waits longer is nobody's partner."""
UNLISTED_S = 60.0
"""A kubelet that has just started lists its pods only little by little."""


@dataclass(slots=True)
class Presence:
    clock: Callable[[], float]
    _born_s: dict[str, float] = field(default_factory=dict)
    _listed: set[str] = field(default_factory=set)
    _half_open: dict[str, float] = field(default_factory=dict)
    _missing_s: dict[str, float] = field(default_factory=dict)

    def born(self, name: str) -> None:
        self.forget(name)
        self._born_s[name] = self.clock()

    def opened(self, name: str, partner: str | None) -> None:
        """A container's first half, or the second one of `partner`."""
        if partner is None:
            self._half_open[name] = self.clock()
        else:
            self._half_open.pop(partner, None)

    def half_open(self) -> list[str]:
        """Allocations that still wait for their other half, the latest last."""
        now_s = self.clock()
        for name, since_s in tuple(self._half_open.items()):
            if now_s - since_s > HALF_OPEN_S:
                del self._half_open[name]
        return list(self._half_open)

    def age_s(self, allocation: Allocation) -> float:
        """Of those from before our start: old enough for anything."""
        return self.clock() - self._born_s.get(allocation.name, float("-inf"))

    def is_settled(self, allocation: Allocation) -> bool:
        """Whether its container's other calls are surely over; of those from before our start
        nobody knows."""
        return UNRECORDED_S < self.age_s(allocation) < float("inf")

    def last_born(self, names: Collection[str]) -> str | None:
        """The one of these that was answered last; None if all are from before our start."""
        return next((name for name in reversed(self._born_s) if name in names), None)

    def listed(self, names: Collection[str]) -> None:
        """The kubelet's list says that they live."""
        self._listed.update(names)
        for name in self._missing_s.keys() & set(names) if self._missing_s else ():
            del self._missing_s[name]

    def is_listed(self, name: str) -> bool:
        return name in self._listed

    def is_over(
        self, allocation: Allocation, recorded: bool | None, *, is_complete: bool, is_gone: bool
    ) -> bool:
        """Whether an allocation that this list does not have may be given up. `recorded` is
        whether the kubelet's checkpoint has it, None when that could not be read; the list
        `is_complete` when the kubelet knew its containers. What it has not listed since it
        started may run on for as long as nobody can tell it its pods: time alone ends nothing,
        the pod `is_gone` by the API server, too."""
        name = allocation.name
        if recorded is False and self.age_s(allocation) >= UNRECORDED_S:
            return True
        if not is_complete:
            return False
        if name in self._listed:
            return True
        missing_s = self.clock() - self._missing_s.setdefault(name, self.clock())
        return recorded is not False and is_gone and missing_s >= UNLISTED_S

    def forget(self, name: str) -> None:
        self._born_s.pop(name, None)
        self._half_open.pop(name, None)
        self._listed.discard(name)
        self._missing_s.pop(name, None)

    def kubelet_restarted(self) -> None:
        self._listed.clear()
        self._missing_s.clear()
