"""What node agents answered, asked again and again while somebody looks, and never otherwise."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from aliquot.protocol import view
from aliquot.protocol.assignment import MalformedError
from aliquot.protocol.view import History, NodeView
from scheduler_ext.dashboard.address import AddressError, agent_address
from scheduler_ext.dashboard.asking import AskError, get
from scheduler_ext.dashboard.history import total

__all__ = ["Answer", "Answers", "Pace"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much agents are asked, so that kube-scheduler hardly notices a viewer."""

    watched_s: float = 30.0
    """How long after the last look it still counts as looked at."""
    fresh_s: float = 2.0
    """How long an answer is good enough: ten viewers cost as much as one."""
    history_s: float = 30.0
    failed_s: float = 10.0
    """After no answer, before the next attempt; doubled up to six times that."""
    asks_per_s: float = 200.0
    """In a cluster of thousands, answers are older than `fresh_s` because of this."""
    threads: int = 32
    timeout_s: float = 2.0
    answer_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The last word of one agent, or why there is none."""

    view: NodeView | None = None
    """Without its histories, which are large."""
    problem: str = ""
    history: History | None = None
    """Of all its GPUs."""
    asked_s: float = 0.0
    history_asked_s: float = float("-inf")
    failures: int = 0


NOT_ASKED = Answer(problem="its agent has not been asked yet")


class Answers:
    def __init__(
        self,
        urls: Callable[[], Mapping[str, str]],
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`urls`: by node, as the agents give them; empty for agents that do not answer."""
        self._urls = urls
        self._pace = pace or Pace()
        self._clock = clock
        self._guard = threading.Lock()
        self._answers: dict[str, Answer] = {}
        self._under_way: set[str] = set()
        self._looked_s = self._history_looked_s = float("-inf")
        self._look = threading.Event()
        self._first_round = threading.Event()
        self._stopping = threading.Event()
        self._free = threading.Semaphore(self._pace.threads)
        self._pool = ThreadPoolExecutor(self._pace.threads, thread_name_prefix="ask")
        self._thread = threading.Thread(target=self._run, name="ask agents", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._look.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._pace.timeout_s)
        self._pool.shutdown(cancel_futures=True)

    def look(self, *, history: bool) -> None:
        """Somebody looks: agents are asked for a while. Whoever comes first waits for a moment."""
        now_s = self._clock()
        with self._guard:
            begins = not self._is_watched(now_s)
            self._looked_s = now_s
            if history:
                self._history_looked_s = now_s
            if begins:
                self._first_round.clear()
        self._look.set()
        self._first_round.wait(self._pace.timeout_s)

    def of(self, node: str) -> Answer:
        return self._answers.get(node, NOT_ASKED)

    def ask_now(self, node: str) -> NodeView | None:
        """One node with the histories of its GPUs, for somebody who looks at it closely."""
        url = self._urls().get(node, "")
        with contextlib.suppress(AddressError, AskError, MalformedError):
            return self._ask(url, history=True)
        return None

    def _is_watched(self, now_s: float) -> bool:
        return now_s - self._looked_s < self._pace.watched_s

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._is_watched(self._clock()):
                self._look.clear()
                # Somebody may have come between these two lines.
                if not self._is_watched(self._clock()):
                    self._answers = {}
                    self._look.wait()
                continue
            try:
                self._round()
            except Exception:
                log.exception("node agents could not be asked")
                self._stopping.wait(self._pace.fresh_s)
            self._first_round.set()
            self._stopping.wait(0.1)

    def _round(self) -> None:
        """Asks those that are due, as many at once as there are threads."""
        urls = self._urls()
        for gone in self._answers.keys() - urls.keys():
            del self._answers[gone]
        asked = []
        for node, url in urls.items():
            if self._stopping.is_set() or not self._is_watched(self._clock()):
                return
            if not self._is_due(node):
                continue
            self._free.acquire()
            with self._guard:
                self._under_way.add(node)
            asked.append(self._pool.submit(self._take, node, url))
            self._stopping.wait(1 / self._pace.asks_per_s)
        if not self._first_round.is_set():
            for each in asked:
                each.result()

    def _is_due(self, node: str) -> bool:
        known = self._answers.get(node)
        if node in self._under_way:
            return False
        if known is None:
            return True
        pause_s = self._pace.fresh_s
        if known.failures:
            pause_s = self._pace.failed_s * min(2 ** (known.failures - 1), 6)
        return self._clock() - known.asked_s >= pause_s

    def _take(self, node: str, url: str) -> None:
        try:
            self._answers[node] = self._answer(url, self.of(node))
        finally:
            with self._guard:
                self._under_way.discard(node)
            self._free.release()

    def _answer(self, url: str, before: Answer) -> Answer:
        now_s = self._clock()
        wants_history = now_s - self._history_looked_s < max(
            self._pace.watched_s, 2 * self._pace.history_s
        )
        with_history = wants_history and now_s - before.history_asked_s >= self._pace.history_s
        try:
            told = self._ask(url, history=with_history)
        except (AddressError, AskError, MalformedError) as error:
            problem = f"its agent tells nothing: {error}"
            return Answer(problem=problem, asked_s=now_s, failures=before.failures + 1)
        except Exception:
            log.exception("an agent's answer could not be read")
            problem = "its agent's answer could not be read; the log says more"
            return Answer(problem=problem, asked_s=now_s, failures=before.failures + 1)
        history, history_asked_s = before.history, before.history_asked_s
        if with_history:
            history = total((told.history or {}).values(), time.time())
            history_asked_s = now_s
        plain = msgspec.structs.replace(told, history=None)
        return Answer(plain, "", history, now_s, history_asked_s)

    def _ask(self, url: str, *, history: bool) -> NodeView:
        if not url:
            raise AddressError("it has not said where it can be asked")
        body = get(
            agent_address(url),
            "/view?history" if history else "/view",
            timeout_s=self._pace.timeout_s,
            most_bytes=self._pace.answer_bytes,
        )
        return view.decode(body, NodeView)
