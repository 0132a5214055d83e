"""The agent's small HTTP server: is it ready, is it alive, its metrics, and its view."""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from aliquot.errors import UserError

__all__ = ["MakePage", "Page", "Web", "text_page"]

CLIENT_TIMEOUT_S = 10
"""A client that neither asks nor reads may not keep a thread."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


MakePage = Callable[[str], Page]
"""Given the query, what stands behind the question mark."""


def text_page(problem: str, remark: str = "") -> Page:
    """For probes: 200, maybe with a remark, or 503 with what is the matter."""
    if problem:
        return Page(f"{problem}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(f"ok: {remark}\n".encode() if remark else b"ok\n")


class Web:
    def __init__(self, address: tuple[str, int], pages: Mapping[str, MakePage]) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages})
        try:
            self._server = _Server(address, handler)
        except OSError as error:
            host, port = address
            raise UserError(
                f"cannot listen on {host or '*'}:{port}: {error.strerror}; choose another --listen"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 1.0}, name="web"
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self.close()
        self._thread.join()

    def close(self) -> None:
        """Of one that was never started."""
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Waiting for them at the end could take as long as their clients like.
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        if ":" in host or (not host and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, _request: object, client: object) -> None:
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            # A probe, a scanner or a scraper that had waited long enough.
            log.debug("%s has left: %s", client, error)
        else:
            log.error("a request of %s failed", client, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = CLIENT_TIMEOUT_S
    pages: ClassVar[Mapping[str, MakePage]] = {}

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        make = self.pages.get(path)
        if make is None:
            known = ", ".join(sorted(self.pages))
            page = Page(f"there are {known}\n".encode(), HTTPStatus.NOT_FOUND)
        else:
            try:
                page = make(query)
            except Exception as error:
                log.exception("%s failed", self.path)
                page = Page(f"{error}\n".encode(), HTTPStatus.INTERNAL_SERVER_ERROR)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        log.debug(format, *args)
