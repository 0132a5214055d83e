"""HTTP with one server: connections that are kept, for any number of threads, and streams.

By the standard library alone: this is part of the agent on every node, where the libraries that do
more took six megabytes.
"""

import base64
import contextlib
import http.client
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from aliquot import __version__

__all__ = ["Answer", "Authentication", "HttpClient", "HttpFailure", "Stream"]

HttpFailure = (http.client.HTTPException, OSError)
"""What every method here may raise."""

_MOST_KEPT = 8
_PIECE_BYTES = 256 << 10


class Authentication(Protocol):
    """Who we are, for any number of threads. Both may raise an OSError."""

    def header(self) -> str: ...

    def replace(self, refused: str, /) -> str:
        """Another header than this one, which the server did not take; empty if there is none."""


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


class Stream:
    """An answer that goes on. Read by one thread; `cut` may come from any."""

    def __init__(self, line: socket.socket, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._line = line
        self._response = response

    def read(self) -> bytes:
        """What has come, or the next that comes; empty at the end."""
        return self._response.read1(_PIECE_BYTES)

    def read_all(self) -> bytes:
        return self._response.read()

    def cut(self) -> None:
        """Ends it, also for a thread that waits for the server."""
        # Closing the descriptor would leave the reader asleep, or let it read a stranger's. And not
        # by TLS: a TLS socket's own shutdown takes away what the reader uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._line, socket.SHUT_RDWR)

    def close(self) -> None:
        """By its reader."""
        self._response.close()
        self._line.close()


class HttpClient:
    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        authentication: Authentication | None = None,
        proxy: str | None = None,
    ) -> None:
        """`proxy` is a URL, empty for none; by default as the environment says."""
        self.url = url.rstrip("/")
        self.on_answer: Callable[[Message], None] = lambda _: None
        """Told the headers of each whole answer."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a server")
        self._prefix = parts.path
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = tls or ssl.create_default_context() if parts.scheme == "https" else None
        self._proxy = _environment_proxy(self._host, self._port) if proxy is None else proxy
        self._authentication = authentication
        self._guard = threading.Lock()
        self._kept: list[http.client.HTTPConnection] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        timeout_s: float,
    ) -> Answer:
        """`timeout_s`: for the connection, and between two parts of the answer."""

        def ask(identity: str) -> Answer:
            connection, response = self._ask(
                identity, method, path, query, body, content_type, timeout_s
            )
            try:
                content = response.read()
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return Answer(response.status, response.headers, content)

        identity = self._identity()
        answer = ask(identity)
        if answer.status == 401 and (other := self._identity(refused=identity)):
            answer = ask(other)
        self.on_answer(answer.headers)
        return answer

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float, silence_s: float
    ) -> Stream:
        """`silence_s`: the longest between two parts of what comes."""

        def ask(identity: str) -> Stream:
            connection, response = self._ask(
                identity, "GET", path, query, None, "", timeout_s, kept=False
            )
            line = connection.sock
            line.settimeout(silence_s)
            return Stream(line, response)

        identity = self._identity()
        answer = ask(identity)
        if answer.status != 401:
            return answer
        try:
            other = self._identity(refused=identity)
        except BaseException:
            answer.close()
            raise
        if other:
            answer.close()
            answer = ask(other)
        return answer

    def close(self) -> None:
        with self._guard:
            kept, self._kept = self._kept, []
        for each in kept:
            each.close()

    def _identity(self, *, refused: str = "") -> str:
        if self._authentication is None:
            return ""
        return self._authentication.replace(refused) if refused else self._authentication.header()

    def _ask(
        self,
        identity: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        timeout_s: float,
        *,
        kept: bool = True,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers = {"User-Agent": f"aliquot/{__version__}", "Accept": "application/json"}
        if identity:
            headers["Authorization"] = identity
        if content_type:
            headers["Content-Type"] = content_type
        target = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        connection = (self._kept_one() if kept else None) or self._new(timeout_s)
        try:
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            connection.request(method, target, body, headers)
            # The line of a stream is ours, also when the server will not keep it.
            line = connection.sock
            response = connection.getresponse()
            if not kept:
                connection.sock = line
            return connection, response
        except BaseException:
            connection.close()
            raise

    def _new(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._host, self._port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        if not self._proxy:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        proxy = urlsplit(self._proxy)
        through = http.client.HTTPSConnection(
            proxy.hostname or "", proxy.port or 80, timeout=timeout_s, context=self._tls
        )
        headers = {}
        if proxy.username is not None:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers["Proxy-Authorization"] = basic(pair)
        through.set_tunnel(host, port, headers)
        return through

    def _kept_one(self) -> http.client.HTTPConnection | None:
        """One that the server has not closed meanwhile."""
        while True:
            with self._guard:
                if not self._kept:
                    return None
                connection = self._kept.pop()
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._guard:
            # The library has closed its socket where the server will not go on with it.
            if connection.sock is not None and len(self._kept) < _MOST_KEPT:
                self._kept.append(connection)
                return
        connection.close()


def basic(pair: str) -> str:
    """The header for `name:password`."""
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _environment_proxy(host: str, port: int) -> str:
    if proxy_bypass(f"{host}:{port}"):
        return ""
    return getproxies().get("https", "")
