"""The pods of this node, held in memory and kept up to date by a watch."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.objects import ObjectMeta, Pod
from aliquot.kubernetes.paths import PODS
from aliquot.kubernetes.reflector import Reflector
from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol import names
from deviceplugin.booking.sources import PodView
from deviceplugin.cluster.podview import view_of

__all__ = ["KnownPod", "PodCache"]


_MIRROR = "kubernetes.io/config.mirror"
"""On the mirror of a static pod, where it equals the next: the kubelet runs no such pod itself."""
_STATIC_UID = "kubernetes.io/config.hash"
"""On the same: the uid that the kubelet, its checkpoint and cgroups know."""


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod with what only the API server's side of us needs."""

    view: PodView
    api_uid: str
    """In the API server; `view.uid` is the kubelet's."""
    resource_version: str
    resized: str
    """What was answered to its last resize."""
    is_finished: bool


class PodCache:
    """Look-ups come from any thread and never touch the network.

    `on_change` is told of each pod that is new or looks different to us, `on_gone` of each that has
    finished or was deleted, once; both from the watch's thread.
    """

    def __init__(
        self,
        client: ApiClient,
        node_name: str,
        on_change: Callable[[KnownPod], None],
        on_gone: Callable[[KnownPod], None],
    ) -> None:
        self._node_name = node_name
        self._on_change = on_change
        self._on_gone = on_gone
        self._by_uid: dict[str, KnownPod] = {}
        """By the API server's uids, which nobody can choose."""
        self._uids: dict[tuple[str, str], str] = {}
        self._changed = threading.Condition()
        self._reflector = Reflector(
            client,
            PODS,
            Pod,
            self._replace,
            self._take,
            field_selector=f"spec.nodeName={node_name}",
            # Thousands of agents ask at once after an outage, and old news are good enough.
            from_cache=True,
        )

    def start(self) -> None:
        self._reflector.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        self._reflector.stop(timeout_s)

    @property
    def is_synced(self) -> bool:
        return self._reflector.synced.is_set()

    @property
    def age_s(self) -> float:
        """Since the API server's last word."""
        return self._reflector.age_s

    @property
    def trouble(self) -> str:
        """Why the watch does not stand; empty while it does."""
        return self._reflector.trouble

    def find(self, namespace: str, name: str) -> PodView | None:
        with self._changed:
            uid = self._uids.get((namespace, name))
            return self._by_uid[uid].view if uid is not None else None

    def wait(self, namespace: str, name: str, seconds: float) -> PodView | None:
        """`find`, waiting for a watch that is late; not for one that does not stand."""
        with self._changed:
            self._changed.wait_for(
                lambda: (namespace, name) in self._uids or not self._is_following(), seconds
            )
        return self.find(namespace, name)

    def waiting(self) -> Iterable[PodView]:
        """All that are not finished, the oldest first."""
        living = [each.view for each in self.known() if not each.is_finished]
        return sorted(living, key=lambda each: (each.created_s, each.namespace, each.name))

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the API server, which has to be there, shows no such pod that lives."""
        with self._changed:
            known = self._find(uid or self._uids.get((namespace, name), ""))
            return self._is_following() and (known is None or known.is_finished)

    def by_uid(self, uid: str) -> KnownPod | None:
        """By the uid that the kubelet knows; the API server's own comes first."""
        with self._changed:
            return self._find(uid)

    def known(self) -> list[KnownPod]:
        with self._changed:
            return list(self._by_uid.values())

    def _find(self, uid: str) -> KnownPod | None:
        known = self._by_uid.get(uid)
        if known is None:
            # A static pod's, of which there are few, or nobody's.
            mirrors = (each for each in self._by_uid.values() if each.view.uid == uid)
            known = next(mirrors, None)
        return known

    def _is_following(self) -> bool:
        return self.is_synced and not self.trouble

    def _replace(self, pods: list[Pod]) -> None:
        listed = [_known(pod, self._node_name) for pod in pods]
        uids = {each.api_uid for each in listed}
        for each in self.known():
            if each.api_uid not in uids:
                self._forget(each)
        for each in listed:
            self._put(each)

    def _take(self, change: Change[Pod]) -> None:
        told = _known(change.object, self._node_name)
        if change.kind is ChangeKind.DELETED:
            self._forget(told)
        else:
            self._put(told)

    def _put(self, told: KnownPod) -> None:
        view, uid = told.view, told.api_uid
        with self._changed:
            before = self._by_uid.get(uid)
            namesake = self._uids.get((view.namespace, view.name), uid)
            replaced = self._by_uid[namesake] if namesake != uid else None
            self._by_uid[uid] = told
            self._uids[view.namespace, view.name] = uid
            self._changed.notify_all()
        if replaced is not None:
            # Its deletion fell into a gap between two lists.
            self._forget(replaced)
        if told.is_finished:
            if before is None or not before.is_finished:
                self._on_gone(told)
        elif before is None or before.view != view:
            self._on_change(told)

    def _forget(self, told: KnownPod) -> None:
        view, uid = told.view, told.api_uid
        with self._changed:
            known = self._by_uid.pop(uid, None)
            if known is None:
                return
            if self._uids.get((view.namespace, view.name)) == uid:
                del self._uids[view.namespace, view.name]
        if not known.is_finished:
            self._on_gone(told)


def _known(pod: Pod, node_name: str) -> KnownPod:
    metadata = pod.metadata
    view = view_of(pod)
    static_uid = _static_uid(metadata, node_name)
    return KnownPod(
        view=replace(view, uid=static_uid) if static_uid else view,
        api_uid=metadata.uid,
        resource_version=metadata.resource_version,
        resized=metadata.annotations.get(names.RESIZED, ""),
        is_finished=pod.is_finished,
    )


def _static_uid(metadata: ObjectMeta, node_name: str) -> str:
    """Empty for all but mirrors as this node's kubelet makes them. Users can write all of it, too:
    whoever goes by this uid has to compare namespace and name with what the kubelet says."""
    uid = metadata.annotations.get(_STATIC_UID, "")
    is_mirror = metadata.annotations.get(_MIRROR) == uid and any(
        (each.api_version, each.kind, each.name) == ("v1", "Node", node_name)
        for each in metadata.owner_references
    )
    return uid if is_mirror else ""
