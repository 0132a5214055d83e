"""One watch: the changes that the API server streams, until it or we end it."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from aliquot.kubernetes.errors import ApiError, UnreachableError
from aliquot.kubernetes.http import HttpFailure, Stream

__all__ = ["Change", "ChangeKind", "Watch"]

T = TypeVar("T")


class ChangeKind(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    kind: ChangeKind
    object: T
    """As it is now; for DELETED as it was last."""


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()


class _Failure(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(_Event)
_VERSIONED = msgspec.json.Decoder(_Versioned)
_FAILURE = msgspec.json.Decoder(_Failure)


class Watch(Generic[T]):
    """Iterated by one thread; `close` may come from any."""

    def __init__(
        self,
        stream: Stream,
        decoder: msgspec.json.Decoder[Any],
        resource_version: str,
    ) -> None:
        self.resource_version = resource_version
        """Up to where everything has been handed out; moved by bookmarks as well."""
        self.heard_at_s = time.monotonic()
        """When the server last said anything."""
        self._stream = stream
        self._decoder = decoder
        self._closed = False

    def __iter__(self) -> Iterator[Change[T]]:
        try:
            with contextlib.closing(self._stream):
                for line in self._lines():
                    self.heard_at_s = time.monotonic()
                    change = self._change(_EVENT.decode(line))
                    if change is not None:
                        yield change
        except TimeoutError:
            # Silent for too long. Nothing is lost: the next watch goes on from here.
            return
        except (*HttpFailure, msgspec.DecodeError) as error:
            if not self._closed:
                raise UnreachableError(f"a watch broke off: {error}") from error

    def close(self) -> None:
        """Ends the iteration, also one that waits for the server in another thread."""
        self._closed = True
        self._stream.cut()

    def _lines(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        while chunk := self._stream.read():
            first, *others = chunk.split(b"\n")
            pieces.append(first)
            for other in others:
                if line := b"".join(pieces).strip():
                    yield line
                pieces = [other]

    def _change(self, event: _Event) -> Change[T] | None:
        if event.type == "ERROR":
            told = _FAILURE.decode(event.object)
            raise ApiError(told.code, told.reason, told.message)
        version = _VERSIONED.decode(event.object).metadata.resource_version
        change = None
        if event.type != "BOOKMARK":
            change = Change(ChangeKind(event.type), self._decoder.decode(event.object))
        self.resource_version = version or self.resource_version
        return change
