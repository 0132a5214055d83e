"""Standard input and output of a pod's program, as `kubectl attach` would give them."""

import json
import os
import subprocess

from aliquot.errors import OperationError
from simcluster.demo.patience import Patience

__all__ = ["Conversation"]


class Conversation:
    def __init__(self, pod: str, process: "subprocess.Popen[bytes]", patience: Patience) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._pod = pod
        self._process = process
        self._patience = patience
        self._input, self._output = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._heard = b""

    def ask(self, line: str) -> dict[str, int]:
        """What the program answers to a command; its first line answers to nothing."""
        if line:
            self.tell(line)
        self._patience.until(self._has_line, f"an answer of the program in pod {self._pod}")
        text, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, int] = json.loads(text)
        return answer

    def tell(self, line: str) -> None:
        try:
            os.write(self._input, f"{line}\n".encode())
        except OSError:
            raise self._ended() from None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _has_line(self) -> bool:
        try:
            read = os.read(self._output, 4096)
        except BlockingIOError:
            read = None
        if read == b"" and b"\n" not in self._heard:
            raise self._ended()
        self._heard += read or b""
        return b"\n" in self._heard

    def _ended(self) -> OperationError:
        return OperationError(f"the program in pod {self._pod} has ended too soon")
