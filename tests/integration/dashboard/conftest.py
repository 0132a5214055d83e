import gzip
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from aliquot.protocol import inventory, names, view
from aliquot.protocol.view import GpuView, NodeView, SliceView
from scheduler_ext.connection import Response
from scheduler_ext.extender import Extender
from scheduler_ext.server import Route, Server
from scheduler_ext.settings import load
from simcluster.apiserver import ApiServer
from tests.extender_cluster import MODEL, gpu_node, uuid_of

GIB = 1 << 30


class Agent:
    """Answers `/view` for a node, whatever a test wants it to."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.answer: Callable[[str], Response] = lambda _: Response(view.encode(self.view()))
        self.queries: list[str] = []
        self.at_once = self.most_at_once = 0
        self._guard = threading.Lock()
        self._server = Server([Route("GET", "/view", self._view)])
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.port}"

    def view(self, **more: Any) -> NodeView:
        runs = SliceView(
            namespace="default",
            pod="p",
            container="main",
            memory_limit_bytes=4 * GIB,
            memory_used_bytes=3 * GIB,
            compute_percent=30.0,
            compute_used_percent=12.5,
        )
        gpu = GpuView(
            uuid=uuid_of(self.node, 0),
            index=0,
            model=MODEL,
            memory_bytes=40 * GIB,
            memory_advertised_bytes=40 * GIB,
            memory_used_bytes=3 * GIB,
            slices=(runs,),
        )
        return NodeView(name=self.node, taken_at=1.0, gpus=(gpu,), **more)

    def stop(self) -> None:
        self._server.stop()

    def _view(self, _: bytes, headers: Mapping[str, str]) -> Response:
        with self._guard:
            self.queries.append(headers[":query"])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self.answer(headers[":query"])
        finally:
            with self._guard:
                self.at_once -= 1


def node_with_agent(name: str, url: str, gpus: int = 1) -> dict[str, Any]:
    made = gpu_node(name, gpus=gpus)
    annotations = made["metadata"]["annotations"]
    found = inventory.decode(annotations[names.INVENTORY])
    annotations[names.INVENTORY] = inventory.encode(msgspec.structs.replace(found, agent_url=url))
    return made


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as standing:
        yield standing


@pytest.fixture
def agent() -> Iterator[Callable[[str], Agent]]:
    started: list[Agent] = []

    def begin(node: str) -> Agent:
        started.append(Agent(node))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


@pytest.fixture
def extender(server: ApiServer) -> Iterator[Callable[..., Extender]]:
    """Starts one against the server, with a dashboard on a port of its own, and awaits it."""
    started: list[Extender] = []

    def begin(**more: Any) -> Extender:
        given = {"listen": "127.0.0.1:0", "dashboard": "127.0.0.1:0", "listen_tls": "off"}
        made = Extender(load({**given, "leader_election": "off", **more}, {}), server.client())
        started.append(made)
        made.start()
        server.wait_for(lambda: not made.not_ready())
        return made

    yield begin
    for each in started:
        each.stop()


Answered = tuple[int, Mapping[str, str], bytes]


@pytest.fixture
def fetch() -> Callable[..., Answered]:
    def get(port: int, path: str, method: str = "GET", **headers: str) -> Answered:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            line.request(method, path, headers=headers)
            answer = line.getresponse()
            body = answer.read()
        finally:
            line.close()
        told = {name.lower(): text for name, text in answer.getheaders()}
        if told.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        return answer.status, told, body

    return get
