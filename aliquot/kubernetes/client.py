"""The requests that we make of the API server, synchronous and usable from any thread."""

import contextlib
import copy
import functools
import random
from collections.abc import Hashable
from email.message import Message
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from aliquot.kubernetes.credentials import find_connection
from aliquot.kubernetes.errors import ApiError, UnreachableError
from aliquot.kubernetes.http import HttpClient, HttpFailure
from aliquot.kubernetes.objects import ObjectMeta
from aliquot.kubernetes.watch import Watch

__all__ = ["ApiClient", "Listing", "PatchKind", "connect"]

T = TypeVar("T")

PatchKind = Literal["merge", "strategic", "json"]

_PATCH_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
WATCH_S = 300.0
"""How long the server shall keep a watch open; varied, so that watches do not end together."""
RETRY_AFTER_MOST_S = 60.0
"""However long a server, or who stands between, asks us to stay away: it may have been a mistake,
and pods would have to wait."""
SILENCE_S = 100.0
"""A watch hears a bookmark about each minute: a connection that is silent for longer is dead."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A consistent picture: a watch from `resource_version` misses nothing after it."""

    items: list[T]
    resource_version: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T] | None = None
    metadata: _ListMeta = _ListMeta()


class _Written(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    error: str = ""
    """Where our own services, asked through the server's proxy, say what went wrong."""
    code: int = 0
    details: _StatusDetails = _StatusDetails()


class ApiClient:
    """`base` is the server's URL, or an HTTP client that already carries URL and credentials."""

    def __init__(
        self, base: str | HttpClient, *, namespace: str = "default", timeout_s: float = 10.0
    ) -> None:
        self.namespace = namespace
        """Where our own objects are, and what a user means who names none."""
        self._http = HttpClient(base, proxy="") if isinstance(base, str) else base
        self._timeout_s = timeout_s

    def with_timeout(self, timeout_s: float) -> "ApiClient":
        """The same connections, for requests that are worth nothing when answered later."""
        other = copy.copy(self)
        other._timeout_s = timeout_s
        return other

    def get(self, path: str, type: type[T]) -> T:  # noqa: A002 (reads as Kubernetes says it)
        return _decode(type, self._request("GET", path))

    def list(
        self,
        path: str,
        type: type[T],  # noqa: A002
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        from_cache: bool = False,
    ) -> Listing[T]:
        """All pages. Raises an ApiError that is `gone` when a page came too late: begin anew.

        `from_cache` accepts what the server has in memory, which may be a moment old; that spares
        it a search through everything when thousands of nodes ask at once.
        """
        parameters = _selectors(label_selector, field_selector)
        if from_cache:
            parameters["resourceVersion"] = "0"
        parameters["limit"] = str(limit)
        items: list[T] = []
        while True:
            page = _decode(
                _Page[type],  # type: ignore[valid-type]
                self._request("GET", path, parameters=parameters),
            )
            items += page.items or ()
            if not page.metadata.continue_:
                return Listing(items, page.metadata.resource_version)
            parameters["continue"] = page.metadata.continue_
            parameters.pop("resourceVersion", None)

    def watch(
        self,
        path: str,
        type: type[T],  # noqa: A002
        resource_version: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = WATCH_S,
        silence_s: float = SILENCE_S,
    ) -> Watch[T]:
        """Iterate over it for the changes after `resource_version`, from one thread.

        It ends when the server's time is over or the line went silent; `.resource_version` is where
        the next watch goes on. Raises an ApiError that is `gone` when that is too old.
        """
        parameters = _selectors(label_selector, field_selector)
        parameters |= {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout_s * random.uniform(0.8, 1.2)))),
        }
        try:
            stream = self._http.stream(
                path, query=parameters, timeout_s=self._timeout_s, silence_s=silence_s
            )
        except HttpFailure as error:
            raise self._unreachable(error) from error
        if stream.status != 200:
            with contextlib.closing(stream):
                try:
                    told = stream.read_all()
                except HttpFailure as error:
                    raise self._unreachable(error) from error
            raise _error(stream.status, told, stream.headers)
        return Watch(stream, _decoder(type), resource_version)

    def patch(self, path: str, body: Any, *, kind: PatchKind = "merge") -> ObjectMeta:
        """What is written below always answers the object's new metadata."""
        return self._write("PATCH", path, body, _PATCH_TYPES[kind])

    def create(self, path: str, body: Any) -> ObjectMeta:
        """`path` is the collection's, or a sub-resource's such as a pod's `binding`."""
        return self._write("POST", path, body)

    def update(self, path: str, body: Any) -> ObjectMeta:
        """Replaces the whole; a conflict when the body's resourceVersion is not the latest."""
        return self._write("PUT", path, body)

    def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> None:
        """With `uid` only that very object, not a later one of its name."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._request("DELETE", path, body=options)

    def close(self) -> None:
        self._http.close()

    def _write(
        self, method: str, path: str, body: Any, content_type: str = "application/json"
    ) -> ObjectMeta:
        answer = self._request(method, path, body=body, content_type=content_type)
        return _decode(_Written, answer).metadata

    def _request(
        self,
        method: str,
        path: str,
        *,
        parameters: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        try:
            answer = self._http.request(
                method,
                path,
                query=parameters,
                body=None if body is None else msgspec.json.encode(body),
                content_type="" if body is None else content_type,
                timeout_s=self._timeout_s,
            )
        except HttpFailure as error:
            raise self._unreachable(error) from error
        if not 200 <= answer.status < 300:
            raise _error(answer.status, answer.body, answer.headers)
        return answer.body

    def _unreachable(self, error: Exception) -> UnreachableError:
        """Also where a token could not be had, which may heal."""
        text = str(error) or type(error).__name__
        return UnreachableError(f"the API server at {self._http.url} does not answer: {text}")


def connect(kubeconfig: Path | None = None, context: str | None = None) -> ApiClient:
    """A client by the usual rules; reads files, but does not talk to the server yet."""
    found = find_connection(kubeconfig, context)
    return ApiClient(found.http, namespace=found.namespace)


def _decode(type: type[T], content: bytes) -> T:  # noqa: A002
    try:
        return _decoder(type).decode(content)
    except msgspec.DecodeError as error:
        # Somebody in between, such as a proxy that asks for a login.
        raise UnreachableError(f"this is no answer of an API server: {error}") from error


def _decoder(type: type[T]) -> msgspec.json.Decoder[T]:  # noqa: A002
    """Building one takes far longer than most answers take to decode."""
    return cast("msgspec.json.Decoder[T]", _build_decoder(cast("Hashable", type)))


@functools.cache
def _build_decoder(type: Any) -> msgspec.json.Decoder[Any]:  # noqa: A002
    return msgspec.json.Decoder(type)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: text for name, text in given.items() if text}


def _error(status: int, content: bytes, headers: Message) -> ApiError:
    """Proxies in between answer in their own words, so that nothing is taken for granted."""
    try:
        told = _decoder(_Status).decode(content)
    except msgspec.DecodeError:
        told = _Status(message=content[:200].decode(errors="replace").strip())
    after = headers.get("Retry-After", "")
    is_number = after.isascii() and after.isdigit() and len(after) < 20
    retry_after_s = int(after) if is_number else told.details.retry_after_seconds
    away_s = min(max(0, retry_after_s), RETRY_AFTER_MOST_S)
    return ApiError(status, told.reason, told.message or told.error, away_s)
