"""The agent's watch over GPUs in a process of its own: a library stays with the node it has found.

Run as a program it watches and prints every picture; imported it starts that program for tests.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DEADLINE_S = 90
"""For what takes seconds, on a machine that is busy with something else."""

Picture = dict[str, Any]


class Watcher:
    """The program, and the pictures that it has published."""

    def __init__(self, env: dict[str, str], **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(options)],
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

    def until(self, accept: Callable[[Picture], bool]) -> Picture:
        """The next published picture that is accepted."""
        deadline = time.monotonic() + DEADLINE_S
        seen: list[Picture] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"only {seen} was published\n{''.join(self.log)}") from None
            seen.append(json.loads(line))
            if accept(seen[-1]):
                return seen[-1]

    def await_log(self, part: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not any(part in line for line in self.log):
            assert time.monotonic() < deadline, f"no {part!r} in the log\n{''.join(self.log)}"
            time.sleep(0.05)

    def end(self) -> int:
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
def watching(env: dict[str, str], **options: Any) -> Iterator[Watcher]:
    watcher = Watcher(env, **options)
    try:
        yield watcher
    finally:
        watcher.end()


def unusable(picture: Picture) -> list[str]:
    return [gpu["unusable"] for gpu in picture["gpus"]]


def main() -> None:
    """Publishes on standard output until standard input ends."""
    import logging

    from deviceplugin.hardware import Hardware
    from deviceplugin.health import HealthWatch
    from deviceplugin.inventory import Choice
    from deviceplugin.nvml import Nvml

    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
    options = json.loads(sys.argv[1])
    choice = Choice(frozenset(options.get("ours", ())), frozenset(options.get("others", ())))

    def publish(hardware: Hardware) -> None:
        counts = {f"{uuid} {xid}": count for (uuid, xid), count in watch.xid_counts.items()}
        print(json.dumps({**asdict(hardware), "xids": counts}), flush=True)

    watch = HealthWatch(
        Nvml(),
        publish,
        choice,
        quiet_s=options.get("quiet_s", 0.0),
        kernel_list=Path(options.get("kernel_list", os.devnull)),
    )
    watch.start()
    sys.stdin.read()
    watch.stop()


if __name__ == "__main__":
    main()
