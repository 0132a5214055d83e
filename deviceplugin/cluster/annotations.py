"""Our annotations on nodes and pods, written once for each change, behind the caller's back."""

import logging
import threading
from dataclasses import dataclass

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from deviceplugin.cluster.errands import Errands

__all__ = ["AnnotationWriter", "Target"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    path: str
    uid: str = ""
    """When given, a later object of the same name is left alone."""

    def __str__(self) -> str:
        return f"annotating {self.path}"


@dataclass(slots=True)
class _Wish:
    """What one annotation shall say; None is not to be there."""

    text: str | None
    is_written: bool = False
    is_refused: bool = False
    """For good: only another text makes it worth trying again."""
    version: int = 0
    """Of the object, after it was written."""
    missing_at: int = 0
    """The latest version in which the object was seen without it."""

    @property
    def was_lost(self) -> bool:
        return self.is_written and self.missing_at > self.version

    @property
    def is_due(self) -> bool:
        return not self.is_refused and (not self.is_written or self.was_lost)


class AnnotationWriter:
    """A merge patch touches nothing but the named annotation: it cannot conflict with others. Each
    is written by itself, so that one which the server refuses does not keep back the others."""

    def __init__(self, client: ApiClient, errands: Errands) -> None:
        self._client = client
        self._errands = errands
        self._wishes: dict[Target, dict[str, _Wish]] = {}
        self._guard = threading.Lock()

    def put(self, target: Target, name: str, text: str | None, *, seen_version: str = "") -> bool:
        """None removes. What was asked for already is not written again (the answer is false),
        unless the object was seen without it in a later version, `seen_version`."""
        with self._guard:
            wishes = self._wishes.setdefault(target, {})
            before = wishes.get(name)
            is_news = before is None or before.text != text
            wish = wishes[name] = _Wish(text) if before is None or is_news else before
            # Also while an older write is still on its way, whose answer says which came first.
            wish.missing_at = max(wish.missing_at, _number(seen_version))
            was_lost = wish.was_lost
            if not wish.is_due:
                return False
        self._errands.submit(target, lambda: self._write(target))
        return is_news or was_lost

    def forget(self, target: Target) -> None:
        """The object is gone."""
        self._errands.cancel(target)
        with self._guard:
            self._wishes.pop(target, None)

    def _write(self, target: Target) -> None:
        with self._guard:
            due = [each for each in self._wishes.get(target, {}).items() if each[1].is_due]
        for name, wish in due:
            if not self._write_one(target, name, wish):
                return

    def _write_one(self, target: Target, name: str, wish: _Wish) -> bool:
        """Whether the object is still there."""
        metadata: dict[str, object] = {"annotations": {name: wish.text}}
        if target.uid:
            metadata["uid"] = target.uid
        try:
            stored = self._client.patch(target.path, {"metadata": metadata})
        except ApiError as error:
            if error.not_found or (error.conflict and target.uid):
                self.forget(target)
                return False
            if not error.is_hopeless:
                raise
            log.warning("%s: %s was refused for good: %s", target, name, error)
            wish.is_refused = True
            return True
        with self._guard:
            wish.is_written = True
            wish.version = _number(stored.resource_version)
        return True


def _number(version: str) -> int:
    # Servers promise that versions compare as numbers; of one that does not we believe nothing.
    return int(version) if version.isdigit() else 0
