"""The cluster as it is shown, encoded: put together at most every two seconds, for all viewers."""

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from aliquot import __version__
from aliquot.protocol.view import History, NodeView, WaitingView
from scheduler_ext.dashboard.answers import Answer, Answers, Pace
from scheduler_ext.dashboard.composition import compose
from scheduler_ext.dashboard.history import total
from scheduler_ext.dashboard.knowledge import Knowledge, NodeFacts, gather
from scheduler_ext.dashboard.queue import WaitingQueue
from scheduler_ext.state import ClusterState

__all__ = ["Dashboard", "Encoded", "UnknownNodeError"]

_FRESH_S = 2.0
_SHARE = 10
"""Putting it together may take a tenth of the time: a larger cluster is shown less often."""

_encode = msgspec.json.Encoder().encode


class UnknownNodeError(LookupError):
    """No node with GPUs has that name."""


class _Cluster(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A ClusterView whose nodes are encoded already, one by one: a long encoding would keep every
    other thread from running."""

    taken_at: float
    version: str
    nodes: list[msgspec.Raw] = []
    waiting: tuple[WaitingView, ...] = ()
    history: History | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    plain: bytes
    zipped: bytes


@dataclass(frozen=True, slots=True)
class _Shown:
    """A node's last encoding, and what it was made of."""

    facts: NodeFacts
    answer: Answer
    encoded: msgspec.Raw


class Dashboard:
    """Thread-safe. Nothing is asked or put together while nobody looks."""

    def __init__(
        self,
        state: ClusterState,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._clock = clock
        self._wall_clock = wall_clock
        self._answers = Answers(self._agent_urls, pace, clock)
        self._queue = WaitingQueue(state, clock)
        self._guard = threading.Lock()
        self._shown: dict[str, _Shown] = {}
        self._views: dict[bool, tuple[float, Encoded]] = {}

    def start(self) -> None:
        self._answers.start()

    def stop(self) -> None:
        self._answers.stop()

    def cluster(self, *, history: bool = False) -> Encoded:
        self._answers.look(history=history)
        with self._guard:
            now_s = self._clock()
            valid_until_s, view = self._views.get(history, (0.0, None))
            if view is None or now_s >= valid_until_s:
                view = self._put_together(history)
                spent_s = self._clock() - now_s
                self._views[history] = (now_s + max(_FRESH_S, _SHARE * spent_s), view)
            return view

    def node(self, name: str, *, history: bool = False) -> Encoded:
        """Of one node, with the histories of its GPUs when asked for; raises UnknownNodeError."""
        self._answers.look(history=False)
        told = self._answers.ask_now(name) if history else None
        knowledge = gather(self._state)
        facts = knowledge.nodes.get(name)
        if facts is None:
            raise UnknownNodeError(name)
        answer = Answer(told) if told is not None else self._answers.of(name)
        view = self._node(facts, answer, knowledge)
        return self._encoded(
            [msgspec.Raw(_encode(view))],
            (),
            total((view.history or {}).values(), self._wall_clock()) if history else None,
        )

    def _put_together(self, history: bool) -> Encoded:
        knowledge = gather(self._state)
        self._shown = {
            name: self._show(name, facts, knowledge) for name, facts in (knowledge.nodes.items())
        }
        answers = (shown.answer.history for shown in self._shown.values())
        return self._encoded(
            [shown.encoded for shown in self._shown.values()],
            self._queue.show(knowledge.waiting),
            total((each for each in answers if each), self._wall_clock()) if history else None,
        )

    def _show(self, name: str, facts: NodeFacts, knowledge: Knowledge) -> _Shown:
        answer = self._answers.of(name)
        before = self._shown.get(name)
        # What only we know is known as of now, and says so.
        same = before is not None and before.answer is answer and before.facts == facts
        if before is not None and same and answer.view is not None:
            return before
        view = self._node(facts, answer, knowledge)
        return _Shown(facts, answer, msgspec.Raw(_encode(view)))

    def _node(self, facts: NodeFacts, answer: Answer, knowledge: Knowledge) -> NodeView:
        now = self._wall_clock()
        return compose(facts, answer.view, answer.problem, knowledge.unit_mib, now)

    def _encoded(
        self,
        nodes: list[msgspec.Raw],
        waiting: tuple[WaitingView, ...],
        history: History | None,
    ) -> Encoded:
        body = _encode(
            _Cluster(
                taken_at=self._wall_clock(),
                version=__version__,
                nodes=nodes,
                waiting=waiting,
                history=history,
            )
        )
        return Encoded(body, gzip.compress(body, 1, mtime=0))

    def _agent_urls(self) -> dict[str, str]:
        with self._state.lock:
            records = list(self._state.nodes.values())
        return {
            record.name: record.inventory.agent_url
            for record in records
            # Agents without GPUs have nothing to tell, and there may be many.
            if record.inventory is not None and record.uuids
        }
