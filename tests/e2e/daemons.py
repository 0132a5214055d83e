"""A daemon of the cluster: started, asked whether it answers, stopped, started again."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["PATIENCE_S", "Daemon", "await_true"]

PATIENCE_S = 600.0
"""A wait that ends well is short; one on a crowded machine must not fail for being long."""


def await_true(
    what: str,
    holds: Callable[[], bool],
    patience_s: float = PATIENCE_S,
    pause_s: float = 0.1,
) -> None:
    """Asks again and again; whoever does not answer now may answer later."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if holds():
                return
            why = ""
        except OSError as error:
            why = f" ({error})"
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience_s:.0f} s{why}")
        time.sleep(pause_s)


class Daemon:
    """One process with its log; a restart appends to the log."""

    def __init__(self, name: str, command: Sequence[str | Path], logs: Path) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log = logs / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM, patience_s: float = PATIENCE_S) -> None:
        if self._process is None:
            return
        if self.is_running():
            os.kill(self.pid, number)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait()

    def await_end(self) -> None:
        """After something else has ended it."""
        if self._process is not None:
            self._process.wait(PATIENCE_S)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def await_answer(self, answers: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Until it answers; if it died, its last words are the error."""

        def holds() -> bool:
            if not self.is_running():
                raise RuntimeError(f"{self.name} ended:\n{self.last_words()}")
            return answers()

        try:
            await_true(self.name, holds, patience_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.last_words()}") from None

    def last_words(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
