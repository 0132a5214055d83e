"""Runs a command as our child, so that whoever watches us cannot tell us from it."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["Relay", "relayed_signals"]

# What a supervisor sends on purpose. Ctrl-C and Ctrl-\ reach the child by themselves, because the
# terminal sends them to the whole group.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class Relay:
    """Hands signals to the child, and those that came before it when it starts."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """The exit code; 128 and the signal's number if a signal ended it, as in a shell."""
        self._child = subprocess.Popen(command, env=environment)
        for number in self._early:
            self._child.send_signal(number)
        code = self._child.wait()
        return 128 - code if code < 0 else code

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Unlike SIG_IGN, a handler is not inherited by the child."""


@contextmanager
def relayed_signals() -> Iterator[Relay]:
    """From here on no signal ends us before what we made for the child is cleared away."""
    relay = Relay()
    before = {number: signal.signal(number, relay.pass_on) for number in _PASSED_ON}
    before |= {number: signal.signal(number, _ignore) for number in _FROM_TERMINAL}
    try:
        yield relay
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
