"""Calls that may never come back: each is made by a thread that nobody waits for beyond measure.

Broken GPUs make drivers hang. Whoever is asked about is a subject, and has at most one call under
way: asked again, it gives that call's answer as soon as there is one.
"""

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, TypeVar

import pynvml

from deviceplugin.gpus.nvml import NvmlError

__all__ = ["Patience", "Unanswered"]

HURRY_S = 0.1
"""How long one subject may hold up the next, which is then asked by another thread."""

_Answer = TypeVar("_Answer")


class Unanswered(NvmlError):  # noqa: N818 - it is no fault of the call
    """The call goes on; its answer is given to who asks next."""

    def __init__(self, subject: str, for_s: float) -> None:
        super().__init__(subject, "the driver does not come back", pynvml.NVML_ERROR_TIMEOUT)
        self.for_s = for_s


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._answer: Any = None
        self.error: Exception | None = None
        self.since_s = time.monotonic()
        self.is_back = threading.Event()

    def make(self) -> None:
        try:
            self._answer = self._function()
        except Exception as error:  # it belongs to whoever asks
            self.error = error

    def answer(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._answer


class Patience:
    """For one thread that asks. Those that it lets wait are kept, and more only when they hang."""

    def __init__(self) -> None:
        self._under_way: dict[str, _Call] = {}
        self._idle: list[SimpleQueue[_Call | None]] = []

    @property
    def tried_for_s(self) -> float:
        """For how long somebody has not come back; 0 when all have."""
        calls = [call for call in list(self._under_way.values()) if not call.is_back.is_set()]
        return max((time.monotonic() - call.since_s for call in calls), default=0.0)

    def ask(self, subject: str, function: Callable[[], _Answer], patience_s: float) -> _Answer:
        """Unanswered when it takes longer, and at once when a call from before still does."""
        answer = self.ask_all({subject: function}, patience_s)[subject]
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def ask_all(
        self, functions: Mapping[str, Callable[[], _Answer]], patience_s: float
    ) -> dict[str, _Answer | NvmlError]:
        """The answers by subject; those who hang do not keep the others from being asked."""
        until_s = time.monotonic() + patience_s
        fresh = []
        for subject, function in functions.items():
            if subject not in self._under_way:
                call = self._under_way[subject] = self._begin(function)
                call.is_back.wait(min(HURRY_S, patience_s))
                fresh.append(call)
        for call in fresh:
            call.is_back.wait(max(0.0, until_s - time.monotonic()))
        return {subject: self._take(subject) for subject in functions}

    def forget(self) -> None:
        """Answers that nobody has asked for since; they belong to another session."""
        for subject, call in list(self._under_way.items()):
            if call.is_back.is_set():
                del self._under_way[subject]

    def close(self) -> None:
        """Ends the threads but those that hang, which end with the process."""
        while self._idle:
            self._idle.pop().put(None)

    def _take(self, subject: str) -> Any:
        call = self._under_way[subject]
        if not call.is_back.is_set():
            return Unanswered(subject, time.monotonic() - call.since_s)
        del self._under_way[subject]
        return call.error if isinstance(call.error, NvmlError) else call.answer()

    def _begin(self, function: Callable[[], Any]) -> _Call:
        call = _Call(function)
        if self._idle:
            work = self._idle.pop()
        else:
            work = SimpleQueue()
            threading.Thread(
                target=self._work, args=(work,), name="gpu-driver", daemon=True
            ).start()
        work.put(call)
        return call

    def _work(self, work: "SimpleQueue[_Call | None]") -> None:
        while (call := work.get()) is not None:
            call.make()
            # In this order: whoever gets the answer finds this thread free.
            self._idle.append(work)
            call.is_back.set()
