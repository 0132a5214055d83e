"""Our annotations on nodes and pods, written once for each change, behind the caller's back."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from deviceplugin.cluster.errands import Errands

__all__ = ["AnnotationWriter", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    path: str
    uid: str = ""
    """When given, a later object of the same name is left alone."""

    def __str__(self) -> str:
        return f"annotating {self.path}"


@dataclass(slots=True)
class _State:
    wanted: dict[str, str | None] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    version: int = 0
    """Of the object, after what was written."""
    missing_at: int = 0
    """The latest version in which it was seen to lack what is wanted."""

    def differing(self) -> dict[str, str | None]:
        if self.missing_at > self.version:
            return dict(self.wanted)
        return {
            name: text
            for name, text in self.wanted.items()
            if name not in self.written or self.written[name] != text
        }


class AnnotationWriter:
    """A merge patch touches nothing but the named annotations: it cannot conflict with others."""

    def __init__(self, client: ApiClient, errands: Errands) -> None:
        self._client = client
        self._errands = errands
        self._states: dict[Target, _State] = {}
        self._guard = threading.Lock()

    def put(
        self, target: Target, annotations: Mapping[str, str | None], *, seen_version: str = ""
    ) -> bool:
        """None removes. What was asked for already is not written again (the answer is false),
        unless the object was seen without it in a later version, `seen_version`."""
        with self._guard:
            state = self._states.setdefault(target, _State())
            # Also while an older write is still on its way, whose answer says which came first.
            state.missing_at = max(state.missing_at, _number(seen_version))
            is_news = state.wanted != state.wanted | dict(annotations)
            was_lost = state.missing_at > state.version > 0
            state.wanted |= annotations
            if not state.differing():
                return False
        self._errands.submit(target, lambda: self._write(target))
        return is_news or was_lost

    def forget(self, target: Target) -> None:
        """The object is gone."""
        self._errands.cancel(target)
        with self._guard:
            self._states.pop(target, None)

    def _write(self, target: Target) -> None:
        with self._guard:
            state = self._states.get(target)
            changes = state.differing() if state is not None else {}
        if state is None or not changes:
            return
        metadata: dict[str, object] = {"annotations": changes}
        if target.uid:
            metadata["uid"] = target.uid
        try:
            stored = self._client.patch(target.path, {"metadata": metadata})
        except ApiError as error:
            if error.not_found or (error.conflict and target.uid):
                self.forget(target)
                return
            raise
        with self._guard:
            state.written |= changes
            state.version = _number(stored.resource_version)


def _number(version: str) -> int:
    # Servers promise that versions compare as numbers; of one that does not we believe nothing.
    return int(version) if version.isdigit() else 0
