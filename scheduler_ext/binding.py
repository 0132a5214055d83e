"""Carries out a bind decision: writes the plan on the pod, then binds it; or undoes everything."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError, UnreachableError
from aliquot.kubernetes.paths import binding_path, pod_path
from aliquot.protocol import assignment, names
from scheduler_ext.groups import Gate, Ticket
from scheduler_ext.holdings import Choice, RefusedError
from scheduler_ext.objects import Pod
from scheduler_ext.records import PodRecord, pod_record
from scheduler_ext.verbs import Verbs

__all__ = ["Binder", "Pause"]

log = logging.getLogger(__name__)


# Behind a group's open gate a binding that may succeed later is tried so often before it fails.
_TRIES = 4

Pause = tuple[Ticket[str], Gate]
"""A bind call waits at its group's barrier as long as it finds this gate."""


class Binder:
    def __init__(
        self,
        client: ApiClient,
        verbs: Verbs,
        may_act: Callable[[], bool],
        timed: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
        *,
        again_s: float = 0.3,
    ) -> None:
        """`may_act`: whether we are the leader, for long enough that a request started now ends
        before another may lead. `again_s`: between the tries of one binding."""
        self._client = client
        self._verbs = verbs
        self._may_act = may_act
        self._timed = timed
        self._again_s = again_s

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Raises RefusedError with the reason when the pod is not bound afterwards."""
        for ticket, gate in self.steps(namespace, name, uid, node):
            self._verbs.companions.wait_while(ticket, gate)

    def steps(self, namespace: str, name: str, uid: str, node: str) -> Iterator[Pause]:
        """`bind`, as far as it goes without waiting for other bind calls."""
        record = self._verbs.known(uid, namespace, name) or self._read(namespace, name, uid)
        with self._timed("bind decision"):
            choice = self._verbs.choose(record, node)
        ticket, companions = choice.ticket, self._verbs.companions
        if ticket is not None:
            yield ticket, Gate.WAIT
            if companions.look(ticket) is Gate.SHUT:
                self._verbs.holdings.give_back(uid)
                raise RefusedError(f"{record.title}: {ticket.failure}")
        version = self._plan(choice)
        if ticket is not None:
            # Nobody is bound before all plans are there: most of what can fail has failed by then.
            companions.plan_written(ticket)
            yield ticket, Gate.PLAN
            if companions.look(ticket) is Gate.SHUT:
                self._undo(choice, version)
                raise RefusedError(f"{record.title}: {ticket.failure}")
        self._bind(choice, version)

    def _plan(self, choice: Choice) -> str:
        pod = choice.pod
        try:
            self._check_leader()
            return self._write_plan(choice)
        except (ApiServerError, RefusedError) as error:
            # A plan that arrived after all, on a pod without a node, runs out by itself.
            self._verbs.holdings.give_back(pod.uid)
            raise RefusedError(f"the plan for {pod.title} was not written: {error}") from error

    def _bind(self, choice: Choice, version: str) -> None:
        pod = choice.pod
        try:
            version = self._create_binding(choice, version)
        except UnreachableError as error:
            self._find_out(choice, error)
        except (ApiError, RefusedError) as error:
            if not self._undo(choice, version):
                text = f"{pod.title} was not bound to {choice.node}: {error}"
                raise RefusedError(text) from error
        self._verbs.holdings.settle(pod.uid)

    def settle_doubtful(self, record: PodRecord) -> None:
        """Asks what became of a pod of which the watch has not told for a long time."""
        try:
            pod = self._client.get(pod_path(record.namespace, record.name), Pod)
        except ApiServerError as error:
            if isinstance(error, ApiError) and error.not_found:
                self._verbs.holdings.give_back(record.uid)
            return
        if pod.metadata.uid == record.uid and pod.spec.node_name:
            self._verbs.holdings.keep(record.uid)
        else:
            self._verbs.holdings.give_back(record.uid)

    def _read(self, namespace: str, name: str, uid: str) -> PodRecord:
        try:
            pod = self._client.get(pod_path(namespace, name), Pod)
        except ApiServerError as error:
            raise RefusedError(f"{namespace}/{name} cannot be read: {error}") from error
        record = pod_record(pod)
        if pod.metadata.uid != uid or record is None:
            raise RefusedError(f"{namespace}/{name} is not the pod that was scheduled")
        if pod.spec.node_name:
            raise RefusedError(f"{namespace}/{name} is bound already")
        return record

    def _write_plan(self, choice: Choice) -> str:
        """The pod's resource version afterwards."""
        pod = choice.pod
        metadata = {
            "uid": pod.uid,
            "annotations": {names.PLAN: assignment.encode(choice.plan)},
        }
        written = self._client.patch(pod_path(pod.namespace, pod.name), {"metadata": metadata})
        return written.resource_version

    def _create_binding(self, choice: Choice, version: str) -> str:
        """Binds the pod only as we left it: a request that is stuck somewhere and arrives when all
        has been decided anew does nothing. Answers the version that it was tried with."""
        for left in reversed(range(_TRIES if choice.ticket else 2)):
            try:
                self._check_leader()
                self._post_binding(choice, version)
                break
            except ApiError as error:
                # The others of a group are being bound at this moment: this one shall not stay out
                # for anything that passes. A pod alone is tried again by kube-scheduler.
                if not left or error.is_final or not (error.conflict or choice.ticket):
                    raise
                if not error.conflict:
                    time.sleep(self._again_s)
                    continue
                # Somebody else wrote to the pod in between, maybe only its status.
                found = self._version_with_plan(choice)
                if not found:
                    raise
                version = found
        return version

    def _version_with_plan(self, choice: Choice) -> str:
        """The pod's present version if it is as we want it; else empty."""
        now = self._client.get(pod_path(choice.pod.namespace, choice.pod.name), Pod)
        as_we_left_it = (
            now.metadata.uid == choice.pod.uid
            and not now.spec.node_name
            and now.metadata.ours.plan == assignment.encode(choice.plan)
        )
        return now.metadata.resource_version if as_we_left_it else ""

    def _post_binding(self, choice: Choice, version: str) -> None:
        pod = choice.pod
        metadata = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": version,
        }
        self._client.create(
            binding_path(pod.namespace, pod.name),
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": metadata,
                "target": {"apiVersion": "v1", "kind": "Node", "name": choice.node},
            },
        )

    def _find_out(self, choice: Choice, trouble: UnreachableError) -> None:
        """The answer was lost. Only a bound pod settles it at once: one that is not bound yet may
        still become so, and what was chosen stays its own until that cannot be any more."""
        pod = choice.pod
        if self._is_bound(choice):
            return
        self._verbs.holdings.doubt(pod.uid)
        log.warning("%s: whether it was bound to %s is not known", pod.title, choice.node)
        raise RefusedError(
            f"whether {pod.title} was bound to {choice.node} is not known yet: {trouble}"
        ) from trouble

    def _is_bound(self, choice: Choice) -> bool:
        """As far as can be found out now."""
        pod = choice.pod
        try:
            now = self._client.get(pod_path(pod.namespace, pod.name), Pod)
        except ApiServerError:
            return False
        return now.metadata.uid == pod.uid and now.spec.node_name == choice.node

    def _undo(self, choice: Choice, version: str) -> bool:
        """Only on the very pod that we wrote to: if anybody changed it since, the plan that is
        there is not ours to remove, and without a node it runs out by itself. True if the change
        was that it is bound, whatever the server answered before."""
        pod = choice.pod
        metadata = {
            "uid": pod.uid,
            "resourceVersion": version,
            "annotations": {names.PLAN: None},
        }
        try:
            self._client.patch(pod_path(pod.namespace, pod.name), {"metadata": metadata})
        except ApiServerError as error:
            gone = isinstance(error, ApiError) and error.not_found
            if not gone and self._is_bound(choice):
                return True
            log.info("%s keeps a plan that was not carried out: %s", pod.title, error)
        self._verbs.holdings.give_back(pod.uid)
        return False

    def _check_leader(self) -> None:
        if not self._may_act():
            raise RefusedError("this extender is not the leader any more")
