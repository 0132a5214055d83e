"""What a test lets go wrong, and with which requests."""

import re
import threading
from dataclasses import dataclass, field

__all__ = ["Fault", "Faults", "Gate"]


class Gate:
    """Requests stand before it until it opens."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        """Set as soon as one request stands there."""
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        self.reached.set()
        self._open.wait()


@dataclass(slots=True)
class Fault:
    method: str
    """Empty for all; WATCH for watches, which are no GET here."""
    path: re.Pattern[str]
    left: float
    """How many more requests it meets."""
    skip: int = 0
    """How many requests pass before the first that it meets."""
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after_s: int = 0
    delay_s: float = 0.0
    gate: Gate | None = None
    lose_answer: bool = False
    """The request is carried out, and the connection breaks before the answer."""


@dataclass(slots=True)
class Faults:
    _faults: list[Fault] = field(default_factory=list)
    _gates: list[Gate] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> None:
        with self._guard:
            self._faults.append(fault)
            if fault.gate:
                self._gates.append(fault.gate)

    def take(self, method: str, path: str) -> list[Fault]:
        """All that meet this request; each is used up by one."""
        taken = []
        with self._guard:
            for fault in self._faults:
                if fault.method not in ("", method) or not fault.path.search(path):
                    continue
                if fault.skip:
                    fault.skip -= 1
                else:
                    fault.left -= 1
                    taken.append(fault)
            self._faults = [fault for fault in self._faults if fault.left > 0]
        return taken

    def clear(self) -> None:
        with self._guard:
            for gate in self._gates:
                gate.open()
            self._gates.clear()
            self._faults.clear()
