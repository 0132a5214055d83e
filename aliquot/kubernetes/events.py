"""Tells users through events on their objects, without ever making the caller wait."""

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError
from aliquot.kubernetes.paths import events_path

__all__ = ["EventRecorder", "EventType", "Reference", "node_reference", "pod_reference"]

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

MESSAGE_MOST = 1024
"""Characters; the server refuses longer ones."""
REMEMBERED_MOST = 2048


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def pod_reference(namespace: str, name: str, uid: str) -> Reference:
    return Reference("Pod", name, namespace, uid)


def node_reference(name: str) -> Reference:
    # The kubelet puts the name where the uid belongs, and `kubectl describe node` looks for that.
    return Reference("Node", name, uid=name)


@dataclass(frozen=True, slots=True)
class _Text:
    about: Reference
    reason: str
    message: str
    type: EventType


@dataclass(slots=True)
class _Written:
    """An event that stands in the API server, to be counted up instead of repeated."""

    name: str
    count: int
    written_at_s: float


class EventRecorder:
    """Equal events within `window_s` become one with a count, written each `repeat_s` at most."""

    def __init__(
        self,
        client: ApiClient,
        component: str,
        instance: str,
        *,
        window_s: float = 600.0,
        repeat_s: float = 10.0,
        waiting_most: int = 1000,
        backoff: Backoff | None = None,
    ) -> None:
        self.dropped = 0
        """How many found no room because the server was away for too long, or were refused."""
        self._client = client
        self._component = component
        self._instance = instance
        self._window_s = window_s
        self._repeat_s = repeat_s
        self._waiting_most = waiting_most
        self._backoff = backoff or Backoff()
        self._waiting: OrderedDict[_Text, int] = OrderedDict()
        self._written: OrderedDict[_Text, _Written] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def emit(
        self,
        about: Reference,
        reason: str,
        message: str,
        type: EventType = "Normal",  # noqa: A002
    ) -> None:
        """`reason` is one CamelCase word, `message` a sentence that its reader can act on."""
        text = _Text(about, reason, message[:MESSAGE_MOST], type)
        with self._changed:
            if text not in self._waiting and len(self._waiting) >= self._waiting_most:
                self.dropped += 1
                return
            self._waiting[text] = self._waiting.get(text, 0) + 1
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Waits until nothing is left that could be written now."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._busy and self._due(time.monotonic())[0] is None, timeout_s
            )

    def stop(self, timeout_s: float = 2.0) -> None:
        """What is waiting gets `timeout_s` to be written."""
        until_s = time.monotonic() + timeout_s
        if self._thread.is_alive():
            self.flush(timeout_s)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            text, count = taken
            pause_s = 0.0
            try:
                self._write(text, count)
                self._backoff.reset()
            except ApiServerError as error:
                if isinstance(error, ApiError) and error.is_final:
                    log.warning("an event was refused: %s: %s", error, text.message)
                    self.dropped += count
                else:
                    log.info("events have to wait: %s", error)
                    pause_s = self._backoff.next_s()
                    self._put_back(text, count)
            except Exception:
                # Nobody else would notice that no event is written any more.
                log.exception("an event could not be written: %s", text.message)
                self.dropped += count
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopping, pause_s)

    def _take(self) -> tuple[_Text, int] | None:
        with self._changed:
            while not self._stopping:
                text, wait_s = self._due(time.monotonic())
                if text is not None:
                    self._busy = True
                    return text, self._waiting.pop(text)
                self._changed.wait(wait_s)
        return None

    def _due(self, now_s: float) -> tuple[_Text | None, float | None]:
        """The first that may be written now, or how long until one may be."""
        wait_s: float | None = None
        for text in self._waiting:
            before = self._written.get(text)
            left_s = before.written_at_s + self._repeat_s - now_s if before else 0.0
            if left_s <= 0:
                return text, None
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        return None, wait_s

    def _put_back(self, text: _Text, count: int) -> None:
        with self._changed:
            self._waiting[text] = self._waiting.get(text, 0) + count
            self._waiting.move_to_end(text, last=False)

    def _write(self, text: _Text, count: int) -> None:
        now_s = time.monotonic()
        before = self._written.get(text)
        if before is not None and now_s - before.written_at_s <= self._window_s:
            try:
                self._count_up(text, before, count)
            except ApiError as error:
                if not error.not_found:
                    raise
                # Events expire in the server after an hour or so.
                self._create(text, count)
        else:
            self._create(text, count)

    def _count_up(self, text: _Text, before: _Written, count: int) -> None:
        path = f"{_events_of(text.about)}/{before.name}"
        changed = {"count": before.count + count, "lastTimestamp": _timestamp()}
        self._client.patch(path, changed)
        self._remember(text, before.name, before.count + count)

    def _create(self, text: _Text, count: int) -> None:
        about, now = text.about, _timestamp()
        name = f"{about.name}.{time.time_ns():x}"
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace or "default"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": about.kind,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
            },
            "type": text.type,
            "reason": text.reason,
            "message": text.message,
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
        }
        self._client.create(_events_of(about), body)
        self._remember(text, name, count)

    def _remember(self, text: _Text, name: str, count: int) -> None:
        with self._changed:
            self._written[text] = _Written(name, count, time.monotonic())
            self._written.move_to_end(text)
            while len(self._written) > REMEMBERED_MOST:
                self._written.popitem(last=False)


def _events_of(about: Reference) -> str:
    return events_path(about.namespace or "default")


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
