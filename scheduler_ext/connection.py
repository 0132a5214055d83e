"""HTTP/1.1 on one socket: requests in, responses out, every wait with a deadline."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

__all__ = ["Connection", "HttpError", "HttpRequest", "Limits", "Response", "failure"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost us."""

    body_bytes: int = 8 << 20
    head_bytes: int = 64 << 10
    request_s: float = 10.0
    """From a request's first byte to its last; also for taking a response, and for TLS."""
    idle_s: float = 120.0
    """Between two requests; longer than the 90 s after which Go's clients give up a connection."""
    connections: int = 512


@dataclass(frozen=True, slots=True)
class Response:
    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    close: bool = False
    """Whether the client shall connect anew, maybe to somebody else."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name; `:query` is what stood behind the `?`."""
    body: bytes
    keep_alive: bool


class HttpError(Exception):
    """A request that is answered by a status and a text."""

    def __init__(self, status: int, text: str, *, close: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.close = close


def failure(error: HttpError) -> Response:
    body = msgspec.json.encode({"error": str(error)})
    return Response(body, error.status, close=error.close)


class Connection:
    """Used by one thread; `abandon` may come from any."""

    def __init__(self, stream: socket.socket, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._buffer = bytearray()
        # Python polls before each call on a socket that has a time-out of its own, and other
        # threads get their turn in between. The kernel can watch the clock by itself.
        self._by_kernel = not isinstance(stream, ssl.SSLSocket)
        if self._by_kernel:
            stream.settimeout(None)

    def read(self) -> HttpRequest | None:
        """The next request; None when the client has nothing more to say.

        Raises HttpError for what is no request that we take, after which the connection is to be
        closed: what follows in the stream cannot be understood.
        """
        if not self._buffer:
            try:
                if not self._fill(time.monotonic() + self._limits.idle_s):
                    return None
            except TimeoutError:
                return None
        deadline_s = time.monotonic() + self._limits.request_s
        try:
            return self._request(deadline_s)
        except TimeoutError:
            raise HttpError(
                408, f"the request did not arrive within {self._limits.request_s:g} s", close=True
            ) from None

    def write(self, response: Response, *, keep_alive: bool) -> None:
        reason = HTTPStatus(response.status).phrase
        head = [
            f"HTTP/1.1 {response.status} {reason}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            *(f"{name}: {text}" for name, text in response.headers.items()),
        ]
        self._send("\r\n".join(head).encode() + b"\r\n\r\n" + response.body)

    def linger(self) -> None:
        """Takes what the client is still sending, for a moment: closing at once would destroy the
        answer on its way."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)
            deadline_s = time.monotonic() + 1.0
            taken = 0
            while taken < self._limits.body_bytes:
                self._buffer.clear()
                if not self._fill(deadline_s):
                    break
                taken += len(self._buffer)

    def abandon(self) -> None:
        """Lets a thread that waits for this client find that nothing more comes."""
        with contextlib.suppress(OSError):
            # Not the TLS socket's own method: that would send a pending answer in the clear.
            socket.socket.shutdown(self._stream, socket.SHUT_RD)

    def close(self) -> None:
        self._stream.close()

    def _request(self, deadline_s: float) -> HttpRequest | None:
        head = self._head(deadline_s)
        if head is None:
            return None
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise HttpError(400, "this is not an HTTP/1.1 request", close=True)
        method, target, version = words
        headers: dict[str, str] = {}
        for each in fields:
            name, colon, text = each.partition(":")
            if not colon or not name or name != name.strip():
                raise HttpError(400, f"malformed header {each[:80]!r}", close=True)
            key, text = name.lower(), text.strip()
            if key == "content-length" and headers.get(key, text) != text:
                # Who counts otherwise than we do would take one request for two.
                raise HttpError(400, "the request has two Content-Lengths", close=True)
            headers[key] = text
        path, _, headers[":query"] = target.partition("?")
        body = self._body(method, headers, deadline_s)
        wish = headers.get("connection", "").lower()
        keep_alive = wish != "close" and (version != "HTTP/1.0" or wish == "keep-alive")
        return HttpRequest(method, path, headers, body, keep_alive)

    def _head(self, deadline_s: float) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\r\n\r\n", max(0, searched - 3))) < 0:
            searched = len(self._buffer)
            self._check_head(searched)
            if not self._fill(deadline_s):
                return None
        self._check_head(end)
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    def _check_head(self, size_bytes: int) -> None:
        most = self._limits.head_bytes
        if size_bytes > most:
            raise HttpError(431, f"headers above {most} bytes are not taken", close=True)

    def _body(self, method: str, headers: dict[str, str], deadline_s: float) -> bytes:
        if "transfer-encoding" in headers:
            raise HttpError(411, "send the body with a Content-Length, not in chunks", close=True)
        text = headers.get("content-length")
        if text is None:
            if method in ("POST", "PUT", "PATCH"):
                raise HttpError(411, "the request needs a Content-Length", close=True)
            return b""
        if not (text.isascii() and text.isdigit()):
            raise HttpError(400, f"Content-Length {text[:40]!r} is not a number", close=True)
        most = self._limits.body_bytes
        # By its digits first: Python refuses to read thousands of them.
        if len(text.lstrip("0")) > len(str(most)) or int(text) > most:
            raise HttpError(
                413, f"the body has {text[:40]} bytes, at most {most} are taken", close=True
            )
        length = int(text)
        if headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._buffer) < length:
            if not self._fill(deadline_s):
                raise HttpError(
                    400, f"the body ended after {len(self._buffer)} of {length} bytes", close=True
                )
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _fill(self, deadline_s: float) -> bool:
        """Takes what has come; false when the client has closed its side."""
        self._allow(socket.SO_RCVTIMEO, deadline_s)
        try:
            chunk = self._stream.recv(256 << 10)
        except BlockingIOError:
            raise TimeoutError from None
        self._buffer += chunk
        return bool(chunk)

    def _send(self, data: bytes) -> None:
        deadline_s = time.monotonic() + self._limits.request_s
        left = memoryview(data)
        while left:
            self._allow(socket.SO_SNDTIMEO, deadline_s)
            try:
                left = left[self._stream.send(left) :]
            except BlockingIOError:
                raise TimeoutError from None

    def _allow(self, option: int, deadline_s: float) -> None:
        """Gives the next call until then."""
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if self._by_kernel:
            # Zero would mean for ever.
            seconds, microseconds = divmod(max(int(left_s * 1e6), 1), 1_000_000)
            self._stream.setsockopt(
                socket.SOL_SOCKET, option, struct.pack("@ll", seconds, microseconds)
            )
        else:
            self._stream.settimeout(left_s)
