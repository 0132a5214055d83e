"""The product's own programs, started as processes for the length of the demo."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from aliquot.errors import OperationError
from simcluster.demo.patience import Patience

__all__ = ["ServedProcess", "put_first"]

ANSWER_S = 10.0
LEAVE_S = 15.0
NICE = -10


class ServedProcess:
    """An `aliquot` sub-command that serves HTTP on ports of its choice, which its log tells."""

    def __init__(
        self,
        command: str,
        flags: Mapping[str, object],
        log: Path,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        # Our own settings come as flags; those of the user's shell are for another cluster.
        kept = {
            name: text
            for name, text in environment.items()
            if not name.startswith("ALIQUOT") or name == "ALIQUOT_SIM_STATE"
        }
        self._name = command
        self._log = log
        words = [f"--{name}={value}" for name, value in flags.items()]
        with open(log, "wb") as file:
            # A session of its own: Ctrl-C is ours to pass on, in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aliquot.cli", command, *words],
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

        put_first(self._process.pid)

    def wait_url(self, patience: Patience, said: str) -> str:
        """Its address, once the log has a line with `said` and a port."""
        pattern = re.compile(rf"{said} on port (\d+)")
        found: list[re.Match[str]] = []

        def heard() -> bool:
            self.check()
            found[:] = list(pattern.finditer(self._log.read_text(errors="replace")))[:1]
            return bool(found)

        patience.until(heard, f"`aliquot {self._name}` to say where it listens")
        return f"http://127.0.0.1:{found[0][1]}"

    def wait_ready(self, patience: Patience, url: str) -> None:
        def is_ready() -> bool:
            self.check()
            return _is_ready(url)

        patience.until(is_ready, f"`aliquot {self._name}` to be ready")

    def check(self) -> None:
        """Raises if it has ended."""
        code = self._process.poll()
        if code is not None:
            last = self._log.read_text(errors="replace").splitlines()[-5:]
            told = "".join(f"\n  {line}" for line in last) or " nothing"
            raise OperationError(
                f"`aliquot {self._name}` has ended by itself (exit code {code}); "
                f"the last it said:{told}"
            )

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def put_first(pid: int) -> None:
    """Lets a process that has just started come before others where we may, which is as root: what
    is measured shall be shares of the GPU, and not the queue for a processor."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    except OSError:
        pass  # we may not, or it has ended; what it lacks then is told by the account


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=ANSWER_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass  # not yet, or too busy to answer
    return False
