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
from scheduler_ext.objects import Metadata, Pod
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
        try:
            for ticket, gate in self.steps(namespace, name, uid, node):
                self._verbs.companions.wait_while(ticket, gate)
        except RefusedError:
            raise
        except Exception:
            # A fault of ours at an unknown step: whoever asks the API server later finds out.
            self._verbs.holdings.abandon(uid)
            raise

    def steps(self, namespace: str, name: str, uid: str, node: str) -> Iterator[Pause]:
        """`bind`, as far as it goes without waiting for other bind calls."""
        record = self._verbs.known(uid, namespace, name)
        if record is None:
            pod = self._read(namespace, name, uid)
            record = pod_record(pod)
            if record is None:
                self._bind_without_gpus(pod, node)
                return
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
                self._remove_plan(choice, version)
                self._verbs.holdings.give_back(uid)
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
        """Binds the pod only as we left it: a request that is stuck somewhere and arrives when all
        has been decided anew does nothing."""
        for left in reversed(range(_TRIES if choice.ticket else 2)):
            try:
                self._check_leader()
                self._post_binding(choice.pod, choice.node, version)
                break
            except UnreachableError as error:
                self._find_out(choice, error)
                break
            except (ApiError, RefusedError) as error:
                later = self._version_to_try(choice, version, error) if left else ""
                if not later:
                    self._give_up(choice, version, error)
                    break
                version = later
        self._verbs.holdings.settle(choice.pod.uid)

    def _version_to_try(self, choice: Choice, version: str, error: ApiError | RefusedError) -> str:
        """Of the pod, when trying once more can help; else empty."""
        if isinstance(error, RefusedError) or error.is_final:
            return ""
        if error.conflict:
            # Somebody else wrote to the pod in between, maybe only its status.
            return self._version_with_plan(choice)
        if not choice.ticket:
            # A pod alone is tried again by kube-scheduler.
            return ""
        # The others of a group are being bound at this moment: this one shall not stay out for
        # anything that passes.
        time.sleep(self._again_s)
        return version

    def settle_doubtful(self, record: PodRecord) -> None:
        """Asks what became of a pod of which the watch has not told for a long time."""
        try:
            pod = self._client.get(pod_path(record.namespace, record.name), Pod)
        except ApiServerError as error:
            if _is_gone(error):
                self._verbs.holdings.give_back(record.uid)
            return
        if pod.metadata.uid == record.uid and pod.spec.node_name and not pod.is_finished:
            self._verbs.holdings.keep(record.uid)
        else:
            self._verbs.holdings.give_back(record.uid)

    def _read(self, namespace: str, name: str, uid: str) -> Pod:
        try:
            pod = self._client.get(pod_path(namespace, name), Pod)
        except ApiServerError as error:
            raise RefusedError(f"{namespace}/{name} cannot be read: {error}") from error
        if pod.metadata.uid != uid or not pod.names_gpus:
            raise RefusedError(f"{namespace}/{name} is not the pod that was scheduled")
        if pod.spec.node_name:
            raise RefusedError(f"{namespace}/{name} is bound already")
        return pod

    def _bind_without_gpus(self, pod: Pod, node: str) -> None:
        """kube-scheduler leaves to us also whoever asks for zero, and there is nothing to plan."""
        try:
            self._check_leader()
            self._post_binding(pod.metadata, node, pod.metadata.resource_version)
        except ApiServerError as error:
            title = f"{pod.metadata.namespace}/{pod.metadata.name}"
            raise RefusedError(f"{title} was not bound to {node}: {error}") from error

    def _write_plan(self, choice: Choice) -> str:
        """The pod's resource version afterwards."""
        pod = choice.pod
        metadata = {
            "uid": pod.uid,
            "annotations": {names.PLAN: assignment.encode(choice.plan)},
        }
        written = self._client.patch(pod_path(pod.namespace, pod.name), {"metadata": metadata})
        return written.resource_version

    def _version_with_plan(self, choice: Choice) -> str:
        """The pod's present version if it is as we want it; else empty."""
        try:
            now = self._client.get(pod_path(choice.pod.namespace, choice.pod.name), Pod)
        except ApiServerError:
            return ""
        as_we_left_it = (
            now.metadata.uid == choice.pod.uid
            and not now.spec.node_name
            and now.metadata.ours.plan == assignment.encode(choice.plan)
        )
        return now.metadata.resource_version if as_we_left_it else ""

    def _post_binding(self, pod: PodRecord | Metadata, node: str, version: str) -> None:
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
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    def _find_out(self, choice: Choice, trouble: ApiServerError | RefusedError) -> None:
        """The answer was lost. Only a bound pod settles it at once: one that is not bound yet may
        still become so, and what was chosen stays its own until that cannot be any more."""
        pod = choice.pod
        if self._node_now(choice) == choice.node:
            return
        self._verbs.holdings.doubt(pod.uid)
        log.warning("%s: whether it was bound to %s is not known", pod.title, choice.node)
        raise RefusedError(
            f"whether {pod.title} was bound to {choice.node} is not known yet: {trouble}"
        ) from trouble

    def _node_now(self, choice: Choice) -> str | None:
        """Where the pod is; empty when it is bound nowhere, None when that cannot be found out."""
        pod = choice.pod
        try:
            now = self._client.get(pod_path(pod.namespace, pod.name), Pod)
        except ApiServerError as error:
            return "" if _is_gone(error) else None
        return now.spec.node_name if now.metadata.uid == pod.uid else ""

    def _give_up(self, choice: Choice, version: str, error: ApiError | RefusedError) -> None:
        """Undoes a binding that was refused. Returns if it was made all the same: a server whose
        store answers too late says 500, and may carry out the request even later. That cannot be
        any more once the plan is removed, or somebody else has changed the pod."""
        trouble = self._remove_plan(choice, version)
        is_certain = trouble is None or _is_gone(trouble)
        if isinstance(trouble, ApiError) and trouble.conflict:
            is_certain = self._node_now(choice) not in (None, choice.node)
        if not is_certain:
            self._find_out(choice, error)
            return
        self._verbs.holdings.give_back(choice.pod.uid)
        text = f"{choice.pod.title} was not bound to {choice.node}: {error}"
        raise RefusedError(text) from error

    def _remove_plan(self, choice: Choice, version: str) -> ApiServerError | None:
        """Only from the very pod that we wrote to: if anybody changed it since, the plan that is
        there is not ours to remove, and without a node it runs out by itself."""
        pod = choice.pod
        metadata = {
            "uid": pod.uid,
            "resourceVersion": version,
            "annotations": {names.PLAN: None},
        }
        try:
            self._client.patch(pod_path(pod.namespace, pod.name), {"metadata": metadata})
        except ApiServerError as error:
            log.info("%s keeps a plan that was not carried out: %s", pod.title, error)
            return error
        return None

    def _check_leader(self) -> None:
        if not self._may_act():
            raise RefusedError("this extender is not the leader any more")


def _is_gone(error: ApiServerError) -> bool:
    return isinstance(error, ApiError) and error.not_found
