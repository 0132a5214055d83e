"""How long allocations have been there and whether the kubelet has ever listed them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from deviceplugin.ledger import Allocation

__all__ = ["Presence"]

UNRECORDED_S = 10.0
"""After this the kubelet has surely written down what we answered."""
UNLISTED_S = 60.0
"""A kubelet that has just started lists its pods only little by little."""


@dataclass(slots=True)
class Presence:
    clock: Callable[[], float]
    births: int = 0
    """Counts what was booked since our start."""
    _born_s: dict[str, float] = field(default_factory=dict)
    _birth: dict[str, int] = field(default_factory=dict)
    _listed: set[str] = field(default_factory=set)
    _missing_s: dict[str, float] = field(default_factory=dict)

    def born(self, name: str) -> None:
        self.forget(name)
        self._born_s[name] = self.clock()
        self.births += 1
        self._birth[name] = self.births

    def is_from_before(self, name: str, births: int) -> bool:
        """Whether it was booked when that many were."""
        return self._birth.get(name, 0) <= births

    def age_s(self, allocation: Allocation) -> float:
        """Of those from before our start: old enough for anything."""
        return self.clock() - self._born_s.get(allocation.name, float("-inf"))

    def listed(self, allocations: Iterable[Allocation]) -> None:
        for each in allocations:
            self._listed.add(each.name)
            self._missing_s.pop(each.name, None)

    def is_over(self, allocation: Allocation, recorded: bool | None) -> bool:
        """Whether an allocation that this list does not have may be given up. `recorded` is
        whether the kubelet's checkpoint has it, None when that could not be read."""
        name = allocation.name
        if name in self._listed:
            return True
        missing_s = self.clock() - self._missing_s.setdefault(name, self.clock())
        if recorded is False:
            return self.age_s(allocation) >= UNRECORDED_S
        return missing_s >= UNLISTED_S

    def forget(self, name: str) -> None:
        self._born_s.pop(name, None)
        self._birth.pop(name, None)
        self._listed.discard(name)
        self._missing_s.pop(name, None)

    def kubelet_restarted(self) -> None:
        self._listed.clear()
        self._missing_s.clear()
