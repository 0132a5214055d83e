"""Tells a program which calls of the driver to make, one at a time."""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.capped import PATIENCE_S, Share

OUT = "out"
"""An argument that the call writes eight bytes to."""


class InOut(bytes):
    """A buffer that the call reads and writes; it comes back in hexadecimal digits."""


class ByValue(bytes):
    """A struct that is passed by value."""


class Client:
    """A process of a share, told one call at a time."""

    def __init__(self, share: Share, library: str = "libcuda.so.1", **environment: str) -> None:
        self.share = share
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", Path(__file__).with_name("cuda_server.py"), library],
            env=share.environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """The call's result, then what it has written for each OUT and InOut."""
        words = [_as_word(word) for word in arguments]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, words]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the client died in {name}: {self.process.wait(PATIENCE_S)}"
        return tuple(json.loads(answer))

    def made(self, name: str, *arguments: Any) -> Any:
        """What a call that must succeed has written: one value, or several."""
        result, *written = self.call(name, *arguments)
        assert result == 0, f"{name} answers {result}"
        return written[0] if len(written) == 1 else written

    def open(self, ordinal: int = 0) -> int:
        """Initialises, and makes a context on a device."""
        self.made("cuInit", 0)
        return int(self.made("cuCtxCreate_v2", OUT, 0, ordinal))

    def held_bytes(self, device: int = 0) -> int:
        """By the account."""
        return self.share.held_bytes(self.process.pid, device)

    def used_bytes(self, gpu: int = 0) -> int:
        """By the simulated GPU."""
        process = self.share.node.snapshot().process(self.process.pid)
        return process.usages[gpu].used_bytes

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None and kind is not None:
            self.process.kill()
        self.close()


def _as_word(argument: Any) -> Any:
    if isinstance(argument, InOut):
        return {"inout": argument.hex()}
    if isinstance(argument, ByValue):
        return {"value": argument.hex()}
    return {"bytes": argument.hex()} if isinstance(argument, bytes) else argument
