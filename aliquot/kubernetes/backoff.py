"""How long to stay away from a server that just failed."""

import random
from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `most_s`; half of each pause is random, to spread callers."""

    first_s: float = 0.25
    most_s: float = 30.0
    failures: int = field(default=0, init=False)

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The pause after one more failure."""
        ceiling_s = min(self.most_s, self.first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least_s, random.uniform(0.5, 1.0) * ceiling_s)

    def reset(self) -> None:
        self.failures = 0
