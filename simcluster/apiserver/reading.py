"""Lists in pages, and watches: what clients read of a collection."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

from simcluster.apiserver.operations import RefusalError, Route, status_body
from simcluster.apiserver.selectors import BadSelectorError, matcher
from simcluster.apiserver.store import Entry, Object, Store, collection_of, with_version

__all__ = ["Reading", "Watching"]

Action = Literal["drop", "end", "expire", "bookmark"]
Event = dict[str, Any]


class DroppedError(Exception):
    """The connection shall break without the end that HTTP asks for."""


class Watching:
    """One running watch, and what a test wants of it."""

    def __init__(self, route: Route, match: Callable[[Object], bool], deadline_s: float) -> None:
        self.route = route
        self.match = match
        self.deadline_s = deadline_s
        self.actions: list[Action] = []


class Reading:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.watches: list[Watching] = []
        self.bookmark_s = 60.0
        self.gone_as_status = False
        """Whether a watch from too long ago is answered by 410; else by 200 and an ERROR event."""
        self._pages: dict[str, tuple[int, list[Object]]] = {}

    def list(self, route: Route, query: dict[str, str]) -> Object:
        match = _matcher(route, query)
        limit = int(query.get("limit") or 0)
        with self.store.changed:
            if token := query.get("continue"):
                if token not in self._pages:
                    raise _expired()
                version, items = self._pages.pop(token)
            else:
                self._check_not_ahead(query.get("resourceVersion") or "0")
                version = self.store.version
                found = self.store.below(route.collection, route.namespace)
                items = [each for _, each in found if match(each)]
            metadata: Object = {"resourceVersion": str(version)}
            # As the server does: what may come from its memory comes whole.
            if limit and len(items) > limit and query.get("resourceVersion") != "0":
                token = uuid.uuid4().hex
                self._pages[token] = version, items[limit:]
                metadata |= {"continue": token, "remainingItemCount": len(items) - limit}
                items = items[:limit]
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}

    def compact(self) -> None:
        with self.store.changed:
            self.store.compact()
            self._pages.clear()

    def tell_watches(self, action: Action, path: str = "") -> None:
        with self.store.changed:
            for watch in self.watches:
                if not path or collection_of(path) == watch.route.collection:
                    watch.actions.append(action)
            self.store.changed.notify_all()

    def watch(self, route: Route, query: dict[str, str]) -> Iterator[Event | None]:
        """Events, after a None that says that the watch stands."""
        match = _matcher(route, query)
        timeout_s = float(query.get("timeoutSeconds") or 1800)
        watch = Watching(route, match, time.monotonic() + timeout_s)
        bookmarks = query.get("allowWatchBookmarks") == "true"
        asked = query.get("resourceVersion") or "0"
        with self.store.changed:
            cursor = int(asked)
            first: list[Event] = []
            if asked == "0":
                cursor = self.store.version
                found = self.store.below(route.collection, route.namespace)
                first = [_event("ADDED", each) for _, each in found if match(each)]
            elif cursor < self.store.oldest:
                if self.gone_as_status:
                    raise _expired()
                watch.actions.append("expire")
            self.watches.append(watch)
            self.store.changed.notify_all()
        try:
            yield None
            yield from first
            yield from self._follow(watch, cursor, bookmarks)
        finally:
            with self.store.changed:
                self.watches.remove(watch)
                self.store.changed.notify_all()

    def _follow(self, watch: Watching, cursor: int, bookmarks: bool) -> Iterator[Event]:
        bookmark_at_s = time.monotonic() + self.bookmark_s
        while True:
            until_s = min(watch.deadline_s, bookmark_at_s if bookmarks else watch.deadline_s)
            with self.store.changed:
                # A watch from the future is silent until the present has caught up.
                if not watch.actions and self.store.version <= cursor:
                    self.store.changed.wait(max(0.0, until_s - time.monotonic()))
                actions, watch.actions = watch.actions, []
                entries, cursor = self.store.after(cursor), max(cursor, self.store.version)
            if "drop" in actions:
                raise DroppedError
            if "expire" in actions:
                refusal = _expired()
                body = status_body(refusal.status, refusal.reason, refusal.message)
                yield {"type": "ERROR", "object": body}
                return
            for entry in entries:
                if event := _seen_by(watch, entry):
                    yield event
            now_s = time.monotonic()
            if bookmarks and ("bookmark" in actions or now_s >= bookmark_at_s):
                bookmark_at_s = now_s + self.bookmark_s
                yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(cursor)}}}
            if "end" in actions or now_s >= watch.deadline_s:
                return

    def _check_not_ahead(self, asked: str) -> None:
        if not asked.isdigit():
            raise RefusalError(400, "BadRequest", f"invalid resource version {asked!r}")
        if int(asked) > self.store.version:
            raise RefusalError(504, "Timeout", "Too large resource version", retry_after_s=1)


def _seen_by(watch: Watching, entry: Entry) -> Event | None:
    if collection_of(entry.path) != watch.route.collection:
        return None
    old = entry.old if entry.old is not None and watch.match(entry.old) else None
    new = entry.new if entry.new is not None and watch.match(entry.new) else None
    if new is not None:
        return _event("ADDED" if old is None else "MODIFIED", new)
    if old is not None:
        return _event("DELETED", with_version(old, entry.version))
    return None


def _event(kind: str, each: Object) -> Event:
    return {"type": kind, "object": each}


def _matcher(route: Route, query: dict[str, str]) -> Callable[[Object], bool]:
    try:
        selected = matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    except BadSelectorError as error:
        raise RefusalError(400, "BadRequest", str(error)) from error
    return lambda each: (
        route.namespace in ("", each["metadata"].get("namespace", ""))
        and route.name in ("", each["metadata"]["name"])
        and selected(each)
    )


def _expired() -> RefusalError:
    return RefusalError(410, "Expired", "too old resource version")
