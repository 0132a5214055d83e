"""The agent's link to the API server: pods come in; inventory, actuals, answers and events go out.

Nothing here makes its caller wait, and nothing fails when the server is away: what can be said
later is said later.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.events import EventRecorder, EventType, node_reference, pod_reference
from aliquot.kubernetes.paths import pod_path
from aliquot.protocol import assignment, names, resize
from aliquot.protocol.assignment import Assignment
from aliquot.protocol.inventory import NodeInventory
from aliquot.protocol.resize import Amounts
from deviceplugin.booking.sources import PodView
from deviceplugin.cluster import notices
from deviceplugin.cluster.annotations import AnnotationWriter, Target
from deviceplugin.cluster.errands import Errands
from deviceplugin.cluster.eviction import evict
from deviceplugin.cluster.inventory import InventoryPublisher
from deviceplugin.cluster.pods import KnownPod, PodCache
from deviceplugin.cluster.resizing import Resized, answer_resize

__all__ = ["ClusterLink", "Node"]

log = logging.getLogger(__name__)

COMPONENT = "aliquot-agent"
UNTOLD_MOST = 256
"""Of how many pods that the API server has not shown yet something is kept to be said."""
LAST_ANSWER_S = 0.5
"""How long at the end each of two watches may take, and whatever they ask just then."""
LAST_WORDS_S = 1.0
"""The same for annotations, and for events."""
UNTOLD_OF_EACH = 16
"""And how much of each: the latest."""
_REFRESH = "comparing what pods have"


@dataclass(frozen=True, slots=True)
class Node:
    """What the link has to know of the rest of the agent; called from the link's threads."""

    name: str
    unit_mib: int
    on_pod: Callable[[PodView], None]
    """A pod of this node is new, looks different, or is looked at once more."""
    on_gone: Callable[[PodView], None]
    """A pod has finished or was deleted."""
    actual_of: Callable[[PodView], Assignment | None]
    """What a pod has."""
    resize: Callable[[PodView, str, Amounts], Resized]
    """(pod, container, wanted): carries it out, or raises one of `refusals`."""
    refusals: tuple[type[Exception], ...] = (ValueError,)
    give_way: Callable[[], None] = lambda: None
    """Returns when containers that start need not go first; called before whatever can wait."""


class ClusterLink:
    def __init__(self, client: ApiClient, node: Node) -> None:
        self.pods = PodCache(client, node.name, self._pod_changed, self._pod_gone)
        self.events = EventRecorder(client, COMPONENT, node.name)
        self._client = client
        self._node = node
        self._errands = Errands(give_way=node.give_way)
        self._writer = AnnotationWriter(client, self._errands)
        self._publisher = InventoryPublisher(client, node.name, self._writer)
        self._inventory: NodeInventory | None = None
        self._answers: dict[str, str] = {}
        self._untold: dict[str, list[Callable[[], None]]] = {}
        self._guard = threading.Lock()
        self._answering = threading.Lock()

    def start(self) -> None:
        self.events.start()
        self._errands.start()
        self._publisher.start()
        self.pods.start()

    def stop(self) -> None:
        """What can be said at once is still said. A server that does not answer is not waited for:
        all of the agent has 10 s to end."""
        self.pods.stop(LAST_ANSWER_S)
        self._publisher.stop(LAST_ANSWER_S)
        self._errands.stop(LAST_WORDS_S)
        self.events.stop(LAST_WORDS_S)

    def publish_inventory(self, found: NodeInventory) -> None:
        """Call it after every look at the GPUs: only changes are written."""
        with self._guard:
            before, self._inventory = self._inventory, found
        self._publisher.publish(found)
        for notice in notices.of_hardware(before, found):
            self.tell_node(notice.reason, notice.message, notice.type)

    def refresh(self, pod_uid: str = "") -> None:
        """Call it when containers were given something or it was taken from them: those of one pod,
        or nobody knows of which."""
        known = self.pods.by_uid(pod_uid) if pod_uid else None
        if known is None:
            self._errands.submit(_REFRESH, self._refresh)
        else:
            self._errands.submit(f"{_REFRESH}: {pod_uid}", lambda: self._refresh_one(pod_uid))

    def name_of(self, pod_uid: str) -> tuple[str, str] | None:
        """Namespace and name of a pod, by the uid that the kubelet knows."""
        known = self.pods.by_uid(pod_uid)
        return (known.view.namespace, known.view.name) if known is not None else None

    def tell_pod(
        self,
        pod_uid: str,
        reason: str,
        message: str,
        type: EventType = "Warning",  # noqa: A002 (as Kubernetes calls it)
    ) -> None:
        """By the uid that the kubelet knows; of a pod that the API server has not shown yet, when
        it does."""
        known = self._known(pod_uid, lambda: self.tell_pod(pod_uid, reason, message, type))
        if known is None:
            log.info("no event yet on pod %s, which no API server shows: %s", pod_uid, message)
            return
        self._tell(known, reason, message, type)

    def tell_node(
        self,
        reason: str,
        message: str,
        type: EventType = "Warning",  # noqa: A002
    ) -> None:
        self.events.emit(node_reference(self._node.name), reason, message, type)

    def evict(self, pod_uid: str, why: str) -> None:
        """Tries until the pod is gone or its disruption budget lets it go."""
        known = self._known(pod_uid, lambda: self.evict(pod_uid, why))
        if known is None or known.is_finished:
            return
        view = known.view
        self.tell_pod(pod_uid, "Evicting", f"evicted by {COMPONENT}: {why}")
        self._errands.submit(
            f"evicting {view.namespace}/{view.name} ({pod_uid})",
            lambda: evict(self._client, view.namespace, view.name, known.api_uid),
        )

    def _tell(self, known: KnownPod, reason: str, message: str, type: EventType) -> None:  # noqa: A002
        about = pod_reference(known.view.namespace, known.view.name, known.api_uid)
        self.events.emit(about, reason, message, type)

    def _known(self, pod_uid: str, later: Callable[[], None]) -> KnownPod | None:
        """The pod; where it is not known yet, `later` is called when it is."""
        known = self.pods.by_uid(pod_uid)
        if known is not None:
            return known
        with self._guard:
            untold = self._untold.setdefault(pod_uid, [])
            untold.append(later)
            del untold[:-UNTOLD_OF_EACH]
            while len(self._untold) > UNTOLD_MOST:
                del self._untold[next(iter(self._untold))]
        if self.pods.by_uid(pod_uid) is not None:
            # It came in between, and nobody will call us for it again.
            self._catch_up(pod_uid)
        return None

    def _catch_up(self, pod_uid: str) -> None:
        with self._guard:
            untold = self._untold.pop(pod_uid, [])
        for say in untold:
            say()

    def _pod_changed(self, known: KnownPod) -> None:
        self._node.on_pod(known.view)
        self._catch_up(known.view.uid)
        self._answer(known.api_uid)
        self._publish_actual(known)

    def _pod_gone(self, known: KnownPod) -> None:
        self._writer.forget(_target(known))
        with self._guard:
            self._answers.pop(known.api_uid, None)
        self._node.on_gone(known.view)

    def _answer(self, api_uid: str) -> None:
        """One at a time, and as the pod is now: an older wish must not come after a newer one."""
        with self._answering:
            known = self.pods.by_uid(api_uid)
            if known is not None and known.view.resize and not known.is_finished:
                self._answer_now(known)

    def _answer_now(self, known: KnownPod) -> None:
        view = known.view
        with self._guard:
            # What we have said may not have come back yet.
            answered = self._answers.get(known.api_uid, known.resized)
        outcome = answer_resize(
            view.resize,
            answered,
            self._node.unit_mib,
            lambda container, wanted: self._node.resize(view, container, wanted),
            self._node.refusals,
        )
        if outcome is None:
            return
        text = resize.encode(outcome.answer)
        with self._guard:
            self._answers[known.api_uid] = text
        self._writer.put(_target(known), names.RESIZED, text)
        kind: EventType = "Warning" if outcome.is_refused else "Normal"
        self._tell(known, outcome.reason, outcome.message, kind)

    def _refresh_one(self, pod_uid: str) -> None:
        known = self.pods.by_uid(pod_uid)
        if known is not None and not known.is_finished:
            self._publish_actual(known)

    def _refresh(self) -> None:
        for known in self.pods.known():
            if not known.is_finished:
                # What could not be written down when the pod was seen is tried again, and what it
                # was too early to answer.
                self._node.on_pod(known.view)
                self._answer(known.api_uid)
                self._publish_actual(known)

    def _publish_actual(self, known: KnownPod) -> None:
        actual = self._node.actual_of(known.view)
        if actual is None or actual == known.view.actual:
            return
        is_news = self._writer.put(
            _target(known),
            names.ACTUAL,
            assignment.encode(actual),
            seen_version=known.resource_version,
        )
        notice = notices.not_as_planned(known.view.plan, actual, self._gpu_name)
        if is_news and notice is not None:
            self._tell(known, notice.reason, notice.message, notice.type)

    def _gpu_name(self, uuid: str) -> str:
        gpus = self._inventory.gpus if self._inventory is not None else ()
        return next((f"GPU {each.index}" for each in gpus if each.uuid == uuid), uuid)


def _target(known: KnownPod) -> Target:
    return Target(pod_path(known.view.namespace, known.view.name), known.api_uid)
