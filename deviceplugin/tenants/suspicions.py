"""Breaches over time: each is told once, when it has been seen often enough in the last looks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from deviceplugin.tenants.judgement import Breach, Identity

__all__ = ["CONFIRMED_AFTER", "LOOKS", "Suspicions"]

CONFIRMED_AFTER = 3
"""In how many looks a breach must be seen. NVML and the account are read one after the other, and a
program may allocate in between."""

LOOKS = 5
"""Of how many; who breaks out and returns between looks would not be told otherwise."""

_STEADY = (True,) * CONFIRMED_AFTER


@dataclass(slots=True)
class _Suspicion:
    seen: tuple[bool, ...] = ()
    """In the last looks that could see it, the newest last."""
    is_told: bool = False
    is_certain: bool = False
    is_excused: bool = False


@dataclass(slots=True)
class Suspicions:
    _all: dict[Identity, _Suspicion] = field(default_factory=dict)
    _current: tuple[Breach, ...] = ()

    def confirm(
        self, breaches: Iterable[Breach], is_hidden: Callable[[str], bool] = lambda _: False
    ) -> tuple[list[Breach], list[Breach]]:
        """Those that are to be told as of this look and were not before, and those that are
        certain now: seen by so many looks one after another.

        Of GPUs that are hidden this look has shown nothing, neither good nor bad.
        """
        now = {breach.identity: breach for breach in breaches}
        told, certain = [], []
        for identity in {**self._all, **now}:
            suspicion = self._all.setdefault(identity, _Suspicion())
            if identity not in now and is_hidden(identity[2]):
                continue
            suspicion.seen = (*suspicion.seen[1 - LOOKS :], identity in now)
            if not any(suspicion.seen):
                del self._all[identity]
                continue
            if not suspicion.is_told and sum(suspicion.seen) >= CONFIRMED_AFTER:
                suspicion.is_told = True
                told.append(now[identity])
            if not suspicion.is_certain and suspicion.seen[-CONFIRMED_AFTER:] == _STEADY:
                suspicion.is_certain = True
                certain.append(now[identity])
        self._current = tuple(
            breach
            for identity, breach in now.items()
            if self._all[identity].is_told and not self._all[identity].is_excused
        )
        return told, certain

    def doubt(self, breach: Breach) -> None:
        """Begins anew with one that was to be told, because it is not known whether it is one."""
        del self._all[breach.identity]
        self._forget(breach)

    def excuse(self, breach: Breach) -> None:
        """It is none, as long as it lasts."""
        self._all[breach.identity].is_excused = True
        self._forget(breach)

    def _forget(self, breach: Breach) -> None:
        self._current = tuple(each for each in self._current if each.identity != breach.identity)

    @property
    def suspects(self) -> frozenset[str]:
        """Tenants, and pods that are none, whom the last looks have seen in a breach."""
        return frozenset(who for _, who, _ in self._all)

    @property
    def current(self) -> tuple[Breach, ...]:
        """Told, and still so."""
        return self._current
