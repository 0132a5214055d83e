"""What GetPreferredAllocation has answered, until the Allocate for it comes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from deviceplugin.booking.admission import Answered
from deviceplugin.booking.identity import Admitted

__all__ = ["Promises"]

KEPT_S = 1.0
"""An Allocate follows its GetPreferredAllocation at once, or never."""


@dataclass(slots=True)
class Promises:
    clock: Callable[[], float]
    _answers: dict[tuple[str, frozenset[str]], Answered] = field(default_factory=dict)

    def make(self, resource: str, answered: Answered) -> None:
        self._answers[resource, answered.ids] = answered

    def take(self, resource: str, some: frozenset[str]) -> Answered | None:
        """What was answered with exactly these ids; None when nobody asked us."""
        return self._answers.pop((resource, some), None)

    def reserved(self, admitted: Admitted | None = None) -> frozenset[str]:
        """Ids answered to somebody else so recently that the Allocate may still come."""
        now_s = self.clock()
        for key, answered in tuple(self._answers.items()):
            if now_s - answered.at_s > KEPT_S:
                del self._answers[key]
        owner = admitted.owner if admitted is not None else None
        return frozenset(
            each
            for answered in self._answers.values()
            if owner is None or answered.admitted is None or answered.admitted.owner != owner
            for each in answered.ids
        )
