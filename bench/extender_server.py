"""An API server's answers from memory: lists made beforehand, and a watch that follows binds.

It has a process of its own, as API servers have: beside the client that is measured it would hold
that up, and be taken for the extender.
"""

import multiprocessing
import queue
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

__all__ = ["TOLD", "stored_server"]

TOLD = "/told"
"""Where pods are POSTed that shall come or go, as the watch tells it."""


@contextmanager
def stored_server(nodes: list[bytes], pods: list[bytes]) -> Iterator[int]:
    """Its port. It knows these pages of nodes and pods."""
    here, there = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(nodes, pods, there), daemon=True
    )
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _serve(nodes: list[bytes], pods: list[bytes], port: Connection) -> None:
    server = _StoredServer(nodes, pods)
    port.send(server.server_address[1])
    server.serve_forever()


class _StoredServer(socketserver.ThreadingTCPServer):
    """Knows the pages of nodes and pods, and the pods of the run by namespace and name."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, nodes: list[bytes], pods: list[bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = {"nodes": nodes, "pods": pods}
        self.run: dict[str, dict[str, Any]] = {}
        self.events: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.version = 3_000_000
        self.lock = threading.Lock()

    def hear(self, kind: str, pod: dict[str, Any]) -> None:
        """One of the run comes, or goes as it has become since."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if kind == "ADDED":
            self.run[path] = pod
        self.tell(kind, self.run.pop(path) if kind == "DELETED" else pod)

    def tell(self, kind: str, pod: dict[str, Any]) -> None:
        with self.lock:
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
            self.events.put(msgspec.json.encode({"type": kind, "object": pod}) + b"\n")

    def change(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        pod = self.run[path.removesuffix("/binding")]
        if "target" in body:
            pod["spec"]["nodeName"] = body["target"]["name"]
        else:
            for name, text in body["metadata"].get("annotations", {}).items():
                pod["metadata"]["annotations"][name] = text
        self.tell("MODIFIED", pod)
        return {"metadata": pod["metadata"]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _StoredServer

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        collection = asked.path.rsplit("/", 1)[-1]
        if "watch" in query:
            self._watch(collection)
        elif collection in self.server.pages:
            page = int(query.get("continue", ["0"])[0])
            self._answer(200, self.server.pages[collection][page])
        elif collection == "poddisruptionbudgets":
            self._answer(200, b'{"metadata":{"resourceVersion":"1"},"items":[]}')
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        told: dict[str, Any] = {}
        if self.path == TOLD:
            self.server.hear(body["type"], body["object"])
        elif not self.path.endswith("/events"):  # of pods that fit nowhere, which nobody reads
            told = self.server.change(self.path, body)
        self._answer(200, msgspec.json.encode(told))

    def do_PATCH(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        pass

    def _watch(self, collection: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while collection == "pods":
            line = self.server.events.get()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        threading.Event().wait()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
