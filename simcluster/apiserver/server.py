"""The stand-in as tests use it: start it, look into it, let things happen, let things fail."""

import copy
import re
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aliquot.kubernetes.client import ApiClient
from simcluster.apiserver.faults import Fault, Faults, Gate
from simcluster.apiserver.http import Answer, Listener, Request
from simcluster.apiserver.operations import (
    Admission,
    Operations,
    RefusalError,
    Route,
    parse_route,
    status_body,
)
from simcluster.apiserver.patches import merge
from simcluster.apiserver.reading import Reading
from simcluster.apiserver.store import Object, Store, timestamp

__all__ = ["ApiServer"]

T = TypeVar("T")

DEADLINE_S = 60.0
_COLLECTIONS = {"Pod": "/api/v1/namespaces/{}/pods/{}", "Node": "/api/v1/nodes/{1}"}


class ApiServer:
    """Use it as a context manager; `url` and `client()` are for the code under test.

    Paths are the server's own (`/api/v1/nodes/n1`). `fail`, `lose_answers`, `delay` and `hold` meet
    requests by method (empty: all; WATCH: watches) and by a regular expression found in the path:
    `skip` of them pass, then `times` are met.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        """What clients have asked, in order of arrival."""
        self._store = Store()
        self._operations = Operations(self._store)
        self._reading = Reading(self._store)
        self._faults = Faults()
        self._stopping = threading.Event()
        self._clients: list[ApiClient] = []
        self._listener = Listener(self._answer, tls)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="api server"
        )

    # Life.

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._faults.clear()
        self._reading.tell_watches("drop")
        self._listener.shutdown()
        self._thread.join()
        self._listener.break_connections()
        self._listener.server_close()
        for client in self._clients:
            client.close()

    @property
    def url(self) -> str:
        host, port = self._listener.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    def client(self) -> ApiClient:
        """Closed with the server."""
        made = ApiClient(self.url, timeout_s=DEADLINE_S)
        self._clients.append(made)
        return made

    # What others do: no admission, no faults, and any field may change.

    def add(self, each: Object) -> Object:
        """A pod or a node, whole with its status."""
        metadata = each["metadata"]
        path = _COLLECTIONS[each["kind"]].format(metadata.get("namespace", ""), metadata["name"])
        return self.put(path, each)

    def put(self, path: str, each: Object) -> Object:
        """Creates or replaces."""
        route = parse_route(path)
        with self._store.changed:
            old = self._store.get(path)
            metadata = {
                "uid": old["metadata"]["uid"] if old else str(uuid.uuid4()),
                "creationTimestamp": timestamp(),
                **each.get("metadata", {}),
                "name": route.name,
            }
            if route.namespace:
                metadata["namespace"] = route.namespace
            stored = self._store.write(path, {**copy.deepcopy(each), "metadata": metadata})
            assert stored is not None
            return stored

    def merge(self, path: str, patch: Object) -> Object:
        with self._store.changed:
            old = self.get(path)
            assert old is not None, f"{path} is not there"
            stored = self._store.write(path, merge(old, patch))
            assert stored is not None
            return stored

    def remove(self, path: str) -> None:
        """At once, without grace or finalizers."""
        self._store.write(path, None)

    def get(self, path: str) -> Object | None:
        return self._store.get(path)

    def objects(self, path: str) -> list[Object]:
        """Of a collection, by its path."""
        route = parse_route(path)
        return [each for _, each in self._store.below(route.collection, route.namespace)]

    @property
    def version(self) -> int:
        return self._store.version

    # Faults.

    def fail(
        self,
        status: int = 500,
        reason: str = "InternalError",
        message: str = "as the test wants it",
        *,
        method: str = "",
        path: str = "",
        times: float = 1,
        skip: int = 0,
        retry_after_s: int = 0,
    ) -> None:
        self._faults.add(
            Fault(
                method,
                re.compile(path),
                times,
                skip,
                status=status,
                reason=reason,
                message=message,
                retry_after_s=retry_after_s,
            )
        )

    def lose_answers(
        self, *, method: str = "", path: str = "", times: float = 1, skip: int = 0
    ) -> None:
        """The request is carried out, but its client never learns that."""
        self._faults.add(Fault(method, re.compile(path), times, skip, lose_answer=True))

    def delay(
        self, delay_s: float, *, method: str = "", path: str = "", times: float = 1, skip: int = 0
    ) -> None:
        self._faults.add(Fault(method, re.compile(path), times, skip, delay_s=delay_s))

    def hold(self, *, method: str = "", path: str = "", times: float = 1, skip: int = 0) -> Gate:
        """Requests wait, before anything is done, until the gate is opened (or the server ends)."""
        gate = Gate()
        self._faults.add(Fault(method, re.compile(path), times, skip, gate=gate))
        return gate

    def clear_faults(self) -> None:
        self._faults.clear()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody reaches it: connections break, and new ones are closed without a word."""
        self._listener.away = True
        self._reading.tell_watches("drop")
        self._listener.break_connections()
        try:
            yield
        finally:
            self._listener.away = False

    def drop_watches(self, path: str = "") -> None:
        """Breaks the connections of all watches, or of those of a collection."""
        self._reading.tell_watches("drop", path)

    def end_watches(self, path: str = "") -> None:
        """Ends them as the server's timeout does."""
        self._reading.tell_watches("end", path)

    def expire_watches(self, path: str = "") -> None:
        """Ends them by an ERROR event that says 410."""
        self._reading.tell_watches("expire", path)

    def send_bookmarks(self) -> None:
        self._reading.tell_watches("bookmark")

    def compact(self, *, gone_as_status: bool = False) -> None:
        """Watches and pages from before now are gone; running watches stay."""
        self._reading.gone_as_status = gone_as_status
        self._reading.compact()

    @property
    def admission(self) -> Admission | None:
        return self._operations.admission

    @admission.setter
    def admission(self, hook: Admission | None) -> None:
        self._operations.admission = hook

    # Waiting.

    def watches(self, path: str) -> int:
        """How many watches of a collection stand now."""
        collection = parse_route(path).collection
        with self._store.changed:
            return sum(each.route.collection == collection for each in self._reading.watches)

    def wait_for(self, claim: Callable[[], T], timeout_s: float = DEADLINE_S) -> T:
        """Until `claim` answers something true; it may be about anything, not only this server."""
        deadline_s = time.monotonic() + timeout_s
        while not (found := claim()):
            assert time.monotonic() < deadline_s, "what was waited for did not happen"
            with self._store.changed:
                self._store.changed.wait(0.02)
        return found

    def asked(self, method: str, path: str = "") -> list[Request]:
        """Requests so far, by method and a regular expression found in the path."""
        return [
            each
            for each in list(self.requests)
            if each.method == method and re.search(path, each.path)
        ]

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        lost = False
        for fault in self._faults.take(request.method, request.path):
            if fault.gate:
                fault.gate.pass_through()
            if fault.delay_s:
                self._stopping.wait(fault.delay_s)
            if fault.status:
                return _failed(
                    RefusalError(fault.status, fault.reason, fault.message, fault.retry_after_s)
                )
            lost |= fault.lose_answer
        if request.path == "/version":
            return Answer(body={"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
        try:
            answer = self._carry_out(request, parse_route(request.path))
        except RefusalError as refusal:
            answer = _failed(refusal)
        return Answer(lost=True) if lost else answer

    def _carry_out(self, request: Request, route: Route) -> Answer:
        if request.method == "WATCH":
            events = self._reading.watch(route, request.query)
            # Refusals come before the first event, while the status can still tell them.
            next(events)
            return Answer(stream=events)
        if request.method == "GET":
            found = self._operations.get(route) if route.name else None
            return Answer(body=found or self._reading.list(route, request.query))
        if request.method == "DELETE":
            return Answer(body=self._operations.delete(route, request.body or {}))
        if not isinstance(request.body, dict | list):
            raise RefusalError(400, "BadRequest", "the body is not JSON")
        if request.method == "POST":
            return Answer(201, self._operations.create(route, _as_object(request.body)))
        if request.method == "PUT":
            return Answer(body=self._operations.replace(route, _as_object(request.body)))
        return Answer(body=self._operations.patch(route, request.content_type, request.body))


def _as_object(body: Any) -> Object:
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise RefusalError(400, "BadRequest", "the body is not an object")
    return body


def _failed(refusal: RefusalError) -> Answer:
    body = status_body(refusal.status, refusal.reason, refusal.message, refusal.retry_after_s)
    return Answer(refusal.status, body, refusal.retry_after_s)
