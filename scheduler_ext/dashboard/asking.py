"""One question to one node agent: a GET with a deadline for all of it and a bound on the answer."""

import socket
import time

from scheduler_ext.dashboard.address import Address

__all__ = ["AskError", "get"]

_HEAD_BYTES = 16 << 10


class AskError(Exception):
    """No usable answer; the text says what came instead."""


def get(address: Address, path: str, *, timeout_s: float, most_bytes: int) -> bytes:
    """The body. HTTP/1.0, so that it is sent in one piece; redirects are not followed."""
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as stream:
            head = f"GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n"
            stream.sendall(head.encode())
            return _body(stream, deadline_s, most_bytes)
    except TimeoutError:
        raise AskError(f"no answer from {address} within {timeout_s:g} s") from None
    except OSError as error:
        raise AskError(f"{address}: {error.strerror or error}") from None


def _body(stream: socket.socket, deadline_s: float, most_bytes: int) -> bytes:
    received = bytearray()
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > _HEAD_BYTES:
            raise AskError("the answer is not HTTP")
        if not _fill(stream, received, deadline_s):
            raise AskError("the answer is not HTTP")
    lines = received[:end].decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise AskError("the answer is not HTTP")
    if words[1] != "200":
        raise AskError(f"the answer has status {words[1][:20]}")
    length = _length(lines[1:])
    del received[: end + 4]
    while length is None or len(received) < length:
        if len(received) > most_bytes or (length or 0) > most_bytes:
            raise AskError(f"the answer has more than {most_bytes >> 20} MiB")
        if not _fill(stream, received, deadline_s):
            if length is not None:
                raise AskError(f"the answer ended after {len(received)} of {length} bytes")
            break
    return bytes(received[:length])


def _length(lines: list[str]) -> int | None:
    for line in lines:
        name, _, text = line.partition(":")
        if name.strip().lower() == "content-length" and text.strip().isdecimal():
            return int(text.strip()[:18])
    return None


def _fill(stream: socket.socket, received: bytearray, deadline_s: float) -> bool:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    stream.settimeout(left_s)
    chunk = stream.recv(256 << 10)
    received += chunk
    return bool(chunk)
