"""A program that looks at a simulated node through nvidia-ml-py, one question at a time.

The library keeps the node it has found for the life of the process, so every node needs a process
of its own to look at it; here that process evaluates what the test asks.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

__all__ = ["NvmlError", "Observer", "await_answer", "observing"]

DEADLINE_S = 120
"""For what takes milliseconds, on a machine that is busy with something else."""

_PROGRAM = """
import ctypes, json, os, sys, threading, time
import pynvml
from pynvml import *

lib = ctypes.CDLL("libnvidia-ml.so.1")

def gpu(index):
    return nvmlDeviceGetHandleByIndex(index)

def answer(request, names):
    try:
        if request["statement"]:
            exec(request["text"], names)
            return json.dumps({"value": None})
        return json.dumps({"value": eval(request["text"], names)})
    except NVMLError as error:
        return json.dumps({"nvml": error.value})
    except Exception as error:
        return json.dumps({"failed": f"{type(error).__name__}: {error}"})

names = dict(globals())
for line in sys.stdin:
    print(answer(json.loads(line), names), flush=True)
"""


class NvmlError(Exception):
    """NVML's answer was not success."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class Observer:
    """The process; `ask` evaluates an expression with all of pynvml's names in sight."""

    def __init__(self, env: dict[str, str], *prefix: str) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, expression: str) -> Any:
        return self._send(expression, statement=False)

    def do(self, statements: str) -> None:
        self._send(statements, statement=True)

    def error(self, expression: str) -> int:
        """What NVML answers instead of a value; 0 when it does answer."""
        try:
            self.ask(expression)
        except NvmlError as error:
            return error.value
        return 0

    def _send(self, text: str, *, statement: bool) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"text": text, "statement": statement}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the observer ended on {text!r}: {self.leave()}"
        answer = json.loads(line)
        if "nvml" in answer:
            raise NvmlError(answer["nvml"])
        assert "failed" not in answer, f"{text}\n{answer['failed']}"
        return answer["value"]

    def leave(self) -> str:
        """Ends the process and gives what it wrote to stderr."""
        _, complaints = self._process.communicate(timeout=DEADLINE_S)
        return complaints

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=DEADLINE_S)


@contextmanager
def observing(env: dict[str, str], *prefix: str) -> Iterator[Observer]:
    """An observer that has initialised NVML."""
    with Observer(env, *prefix) as observer:
        observer.do("nvmlInit()")
        yield observer


def await_answer(question: Callable[[], Any], accept: Callable[[Any], bool]) -> Any:
    """Asks until the answer is accepted: for what needs the node's clock to move on."""
    deadline = time.monotonic() + DEADLINE_S
    while not accept(answer := question()):
        assert time.monotonic() < deadline, f"still {answer!r} after {DEADLINE_S} s"
        time.sleep(0.02)
    return answer
