"""The HTTP(S) server: routes shared by scheduler verbs, webhook, explanation, metrics, health."""

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from scheduler_ext.connection import Connection, HttpError, HttpRequest, Limits, Response, failure

__all__ = ["Handler", "HttpError", "Limits", "Response", "Route", "Server"]

log = logging.getLogger(__name__)

Handler = Callable[[bytes, Mapping[str, str]], Response]
"""Gets the body and the headers by lower-case name; `:query` is what stood behind the `?`.

It runs in the connection's own thread, side by side with others, and may raise HttpError.
"""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler


class Server:
    """One thread a connection: kube-scheduler and the API server keep few, and reuse them."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Listens from here on, though nobody is answered before `start`.

        New certificates may be loaded into `tls` at any time; new connections see them.
        """
        self._routes: dict[str, dict[str, Handler]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route.handler
        self._tls = tls
        self._limits = limits or Limits()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server(
            (host, port), family=family, backlog=128, dualstack_ipv6=host == "::"
        )
        self.port: int = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._open: dict[Connection, threading.Thread] = {}
        self._parting = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"listen {self.port}")
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()

    def linger(self, seconds: float) -> None:
        """Answers as before, but each client for the last time: the next call goes elsewhere."""
        self._parting.set()
        self._stopping.wait(seconds)

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ends waiting clients at once; those that are being answered get their answer."""
        self._parting.set()
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        with self._guard:
            remaining = dict(self._open)
        for connection in remaining:
            connection.abandon()
        for thread in remaining.values():
            thread.join(timeout_s)

    @property
    def connections(self) -> int:
        return len(self._open)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                stream, _ = self._listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                # Out of descriptors, or a client that left before we came: others still want in.
                log.warning("cannot take a connection: %s", error)
                self._stopping.wait(0.1)
                continue
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(stream, self._limits)
            with self._guard:
                if len(self._open) >= self._limits.connections:
                    log.warning("%d clients are connected; one more is sent away", len(self._open))
                    stream.close()
                    continue
                thread = threading.Thread(
                    target=self._serve, args=(connection, stream), name="client", daemon=True
                )
                self._open[connection] = thread
            thread.start()

    def _serve(self, connection: Connection, stream: socket.socket) -> None:
        served = connection
        try:
            if self._tls is not None:
                stream.settimeout(self._limits.request_s)
                served = Connection(self._tls.wrap_socket(stream, server_side=True), self._limits)
                with self._guard:
                    self._open[served] = self._open.pop(connection)
                if self._stopping.is_set():
                    return
            self._converse(served)
        except OSError as error:
            # Gone, too slow, or not speaking TLS: the client's affair.
            log.debug("a connection ended: %s", error)
        finally:
            served.close()
            with self._guard:
                self._open.pop(connection, None)
                self._open.pop(served, None)

    def _converse(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            try:
                request = connection.read()
            except HttpError as error:
                connection.write(failure(error), keep_alive=False)
                connection.linger()
                return
            if request is None:
                return
            response = self._answer(request)
            keep_alive = request.keep_alive and not response.close and not self._parting.is_set()
            connection.write(response, keep_alive=keep_alive)
            if not keep_alive:
                return

    def _answer(self, request: HttpRequest) -> Response:
        handlers = self._routes.get(request.path)
        if handlers is None:
            return failure(HttpError(404, f"there is nothing at {request.path[:200]}"))
        handler = handlers.get(request.method)
        if handler is None:
            allowed = ", ".join(handlers)
            error = failure(HttpError(405, f"{request.path} takes {allowed}"))
            return Response(error.body, error.status, headers={"Allow": allowed})
        try:
            return handler(request.body, request.headers)
        except HttpError as error:
            return failure(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return failure(HttpError(500, "this went wrong on our side; the log says more"))
