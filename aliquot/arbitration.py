"""Hosts the arbiter: one of all processes that could leads, the others stand by.

A dead leader is followed by another one within a fraction of a grant's lifetime, and no container
notices; a stopped one after a second, for which containers have their guaranteed shares.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aliquot.leadership import Leadership
from aliquot.utilization import Samples, Utilization
from shim.arbiter import Arbiter, Pace
from shim.limits import LimitsError

__all__ = ["Arbitration", "Member"]

STAND_BY_S = 0.15
"""How often those who do not lead try to."""

LOOK_S = 0.2
"""How often the leader looks up from ticking: for containers that came or went, for news from NVML,
and whether it still leads."""

LOOK_AGAIN_S = 0.02
"""The same when it was not the time to look."""

SOON_S = 0.002
"""The least time between two looks."""

STOP_S = 5.0
"""How long stopping waits for the driver; a thread that hangs in it ends with the process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """A container that takes part: its compute files and its GPUs in their order."""

    name: str
    limits: Path
    usage: Path
    gpus: tuple[str, ...]

    @classmethod
    def of_run(cls, name: str, folder: Path, gpus: tuple[str, ...]) -> Self:
        """A local run, which has everything in one folder."""
        return cls(name, folder / "compute" / "limits", folder / "compute" / "usage", gpus)


class Arbitration(threading.Thread):
    """A thread that leads whenever nobody else does."""

    def __init__(
        self,
        lock: Path,
        members: Callable[[], Iterable[Member] | None],
        samples: Samples | None = None,
    ) -> None:
        """`members` may answer None when it is not the time to look: all stay as before. `samples`
        are those of a host that has NVML open for other reasons, too."""
        super().__init__(name="arbiter", daemon=True)
        self._lock = lock
        self._members = members
        self._samples = samples
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends leading; grants lapse by themselves, or another leader renews them."""
        self._stopping.set()
        self.join(STOP_S)

    def run(self) -> None:
        leadership = Leadership(self._lock)
        said = ""
        while not self._stopping.is_set():
            try:
                if leadership.win():
                    self._lead(leadership)
                said = ""
            except OSError as error:
                if said != (said := str(error)):
                    _log.warning(
                        "no idle compute is lent, everybody has just the guaranteed share: %s; "
                        "make room for %s, and let us write there",
                        error,
                        self._lock,
                    )
                leadership.give_up()
            except Exception as error:  # nobody else would notice that nothing is lent any more
                if said != (said := repr(error)):
                    _log.exception("arbitration begins anew")
                leadership.give_up()
            self._stopping.wait(STAND_BY_S)
        leadership.give_up()

    def _lead(self, leadership: Leadership) -> None:
        arbiter = Arbiter()
        try:
            self._arbitrate(arbiter, leadership)
        finally:
            arbiter.leave()

    def _arbitrate(self, arbiter: Arbiter, leadership: Leadership) -> None:
        utilization = Utilization(self._samples)
        look_at = 0.0
        pace = Pace.IDLE
        while not self._stopping.is_set():
            now = time.monotonic()
            if now >= look_at:
                if not leadership.keep():
                    return
                members = self._members()
                if members is not None:
                    _seat(arbiter, {member.name: member for member in members})
                look_at = now + (LOOK_S if members is not None else LOOK_AGAIN_S)
            left_s = look_at - now
            if pace is not Pace.IDLE:
                left_s = min(left_s, max(utilization.due_in_s(), SOON_S))
            pace = arbiter.run(left_s)
            if pace is not Pace.IDLE:
                for news in utilization.news(arbiter.shared_gpus):
                    arbiter.measured(*news)


def _seat(arbiter: Arbiter, members: Mapping[str, Member]) -> None:
    for name in arbiter.names - members.keys():
        arbiter.unseat(name)
    for name in members.keys() - arbiter.names:
        member = members[name]
        try:
            arbiter.seat(name, member.limits, member.usage, member.gpus)
        except (OSError, LimitsError) as error:
            # It is just being made or removed; the next look will tell.
            _log.debug("not seated yet: %s", error)
