"""Objects by path, one global resource version, and the history that watches read."""

import threading
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Entry", "Store"]

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One write: `old` is None for a creation, `new` is None for a removal."""

    version: int
    path: str
    old: Object | None
    new: Object | None


class Store:
    """Stored objects are never changed in place, so that pages and history may share them."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        # Not far from the next decimal place: whoever compares versions as texts shall stumble.
        self.first = self.oldest = self.version = 95
        self._collections: dict[str, dict[str, Object]] = {}
        self.history: list[Entry] = []

    def get(self, path: str) -> Object | None:
        with self.changed:
            return self._collections.get(collection_of(path), {}).get(path)

    def write(self, path: str, new: Object | None) -> Object | None:
        """Gives `new` the next version; None removes. Answers what is stored (or was, last)."""
        with self.changed:
            collection = self._collections.setdefault(collection_of(path), {})
            old = collection.get(path)
            self.version += 1
            if new is None:
                if old is None:
                    raise KeyError(path)
                del collection[path]
                stored = with_version(old, self.version)
            else:
                stored = collection[path] = with_version(new, self.version)
            self.history.append(Entry(self.version, path, old, stored if new is not None else None))
            self.changed.notify_all()
            return stored

    def below(self, collection: str, namespace: str) -> list[tuple[str, Object]]:
        """Of a collection (`/api/v1/*/pods`), by path; all namespaces when it is empty."""
        with self.changed:
            found = self._collections.get(collection, {}).items()
            return sorted(
                (path, each)
                for path, each in found
                if namespace in ("", each["metadata"].get("namespace", ""))
            )

    def after(self, version: int) -> list[Entry]:
        with self.changed:
            # Each version is one write, so that the place is known.
            return self.history[version - self.first :]

    def compact(self) -> None:
        """Forgets for whoever begins now; running watches have their own buffers in a server."""
        with self.changed:
            self.oldest = self.version


def with_version(stored: Object, version: int) -> Object:
    return {**stored, "metadata": {**stored["metadata"], "resourceVersion": str(version)}}


def collection_of(path: str) -> str:
    """`/api/v1/namespaces/default/pods/web` and `/api/v1/pods` are both of `/api/v1/*/pods`."""
    words = path.strip("/").split("/")
    group = 2 if words[0] == "api" else 3
    head, rest = words[:group], words[group:]
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return "/".join(["", *head, "*", rest[0]])


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
