"""Parts of the agent in a process of their own: NVML's library stays with the node it has found."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DEADLINE_S = 90
"""For what takes seconds, on a machine that is busy with something else."""

Message = dict[str, Any]


class Program:
    """A script of this folder, and what it prints: a JSON object in every line."""

    def __init__(self, script: str, env: dict[str, str], options: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / script, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**env, "PYTHONPATH": str(ROOT)},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.log: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._lines.put)),
            threading.Thread(target=self._read, args=(self._process.stderr, self.log.append)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, take: Callable[[str], None]) -> None:
        for line in stream:
            take(line)
        stream.close()

    def until(self, accept: Callable[[Message], bool]) -> Message:
        """The next message that is accepted."""
        deadline = time.monotonic() + DEADLINE_S
        seen: list[Message] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"only {seen[-9:]} came\n{''.join(self.log)}") from None
            seen.append(json.loads(line))
            if accept(seen[-1]):
                return seen[-1]

    def await_log(self, part: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not any(part in line for line in self.log):
            assert time.monotonic() < deadline, f"no {part!r} in the log\n{''.join(self.log)}"
            time.sleep(0.05)

    def end(self) -> int:
        """Ends it as the script wants it: by the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(timeout=DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()
            for reader in self._readers:
                reader.join()


@contextmanager
def running(script: str, env: dict[str, str], **options: Any) -> Iterator[Program]:
    program = Program(script, env, options)
    try:
        yield program
    finally:
        program.end()
