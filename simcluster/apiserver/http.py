"""The wire: HTTP/1.1 with kept connections, one thread for each, and chunks for watches."""

import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from simcluster.apiserver.reading import DroppedError

__all__ = ["Answer", "Listener", "Request"]


class Request(msgspec.Struct, frozen=True):
    method: str
    """WATCH for watches."""
    path: str
    query: dict[str, str]
    content_type: str
    body: Any
    headers: dict[str, str]


class Answer(msgspec.Struct, frozen=True):
    """`lost` breaks the connection; `stream` is a watch."""

    status: int = 200
    body: Any = None
    retry_after_s: int = 0
    lost: bool = False
    stream: Iterator[Any] | None = None


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = False
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(
        self, answer: Callable[[Request], Answer], tls: ssl.SSLContext | None = None
    ) -> None:
        self.answer = answer
        self._tls = tls
        self.away = False
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self._tls is not None:
            # The handshake comes with the first read, in the connection's own thread.
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._connections.add(request)
            is_away = self.away
        if is_away:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        with self._guard:
            for each in self._connections:
                try:
                    socket.socket.shutdown(each, socket.SHUT_RDWR)
                except OSError:
                    pass  # the client was faster

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error of ours; an assertion in a hook is, and shall be seen."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Listener

    def _handle(self) -> None:
        asked = urlsplit(self.path)
        query = dict(parse_qsl(asked.query))
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length) if length else b""
        is_watch = self.command == "GET" and query.get("watch") in ("true", "1")
        try:
            body = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            body = content
        answer = self.server.answer(
            Request(
                method="WATCH" if is_watch else self.command,
                path=asked.path,
                query=query,
                content_type=self.headers.get("Content-Type", "").partition(";")[0],
                body=body,
                headers=dict(self.headers.items()),
            )
        )
        if answer.lost or self.server.away:
            self.close_connection = True
        elif answer.stream is not None:
            self._stream(answer.stream)
        else:
            self._send(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 (names of the library)

    def _send(self, answer: Answer) -> None:
        content = msgspec.json.encode(answer.body)
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if answer.retry_after_s:
            self.send_header("Retry-After", str(answer.retry_after_s))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for event in events:
                line = msgspec.json.encode(event) + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except DroppedError:
            self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass
