"""What a tenant may go on holding whose cap has fallen: what it held then, and never more again.

A cap that falls below what is held takes nothing away; it only refuses new allocations until the
rest fits. Whoever frees nothing has therefore done nothing wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SPAN", "Allowances", "Key"]

SPAN = 5
"""Of so many looks the largest use counts: one look may miss a process that goes on."""

Key = tuple[str, str]
"""A tenant's id and a GPU."""


@dataclass(slots=True)
class Allowances:
    _bytes: dict[Key, int] = field(default_factory=dict)
    _used: dict[Key, tuple[int, ...]] = field(default_factory=dict)

    def note(
        self, caps: Mapping[Key, int], used: Mapping[Key, int], credit: Mapping[Key, int]
    ) -> None:
        """What a look has shown of everybody whom it has seen, also of those who use nothing.

        `credit` is for those of whom nothing is remembered, as after a restart of the agent.
        """
        for key, cap_bytes in caps.items():
            recent = (*self._used.get(key, ())[1 - SPAN :], used.get(key, 0))
            before = self._bytes.get(key, credit.get(key, 0))
            self._used[key] = recent
            self._bytes[key] = max(cap_bytes, min(before, max(recent)))

    def knows(self, key: Key) -> bool:
        return key in self._bytes

    def of(self, key: Key) -> int:
        """As of the last look, and never less than the cap was then."""
        return self._bytes.get(key, 0)

    def forget_all_but(self, tenants: Mapping[str, object]) -> None:
        for key in [key for key in self._bytes if key[0] not in tenants]:
            del self._bytes[key], self._used[key]
