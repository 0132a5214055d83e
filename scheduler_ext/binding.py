"""Carries out a bind decision: writes the plan on the pod, then binds it; or undoes everything."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError, UnreachableError
from aliquot.kubernetes.paths import binding_path, pod_path
from aliquot.protocol import assignment, names
from scheduler_ext.holdings import Choice, RefusedError
from scheduler_ext.objects import Pod
from scheduler_ext.records import PodRecord, pod_record
from scheduler_ext.verbs import Verbs

__all__ = ["Binder"]

log = logging.getLogger(__name__)


class Binder:
    def __init__(
        self,
        client: ApiClient,
        verbs: Verbs,
        may_act: Callable[[], bool],
        timed: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """`may_act`: whether we are the leader, for long enough that a request started now ends
        before another may lead."""
        self._client = client
        self._verbs = verbs
        self._may_act = may_act
        self._timed = timed

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Raises RefusedError with the reason when the pod is not bound afterwards."""
        record = self._verbs.known(uid, namespace, name) or self._read(namespace, name, uid)
        with self._timed("bind decision"):
            choice = self._verbs.choose(record, node)
        if choice.ticket is not None and not self._verbs.companions.wait(choice.ticket):
            self._verbs.holdings.give_back(uid)
            raise RefusedError(f"{record.title}: not all of its group came to be bound in time")
        self._carry_out(choice)

    def _carry_out(self, choice: Choice) -> None:
        pod = choice.pod
        try:
            self._check_leader()
            version = self._write_plan(choice)
        except (ApiServerError, RefusedError) as error:
            # A plan that arrived after all, on a pod without a node, runs out by itself.
            self._verbs.holdings.give_back(pod.uid)
            raise RefusedError(f"the plan for {pod.title} was not written: {error}") from error
        try:
            self._check_leader()
            version = self._create_binding(choice, version)
        except UnreachableError as error:
            self._find_out(choice, error)
        except (ApiError, RefusedError) as error:
            self._undo(choice, version)
            raise RefusedError(f"{pod.title} was not bound to {choice.node}: {error}") from error
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
        try:
            self._post_binding(choice, version)
        except ApiError as error:
            if not error.conflict:
                raise
            # Somebody else wrote to the pod in between, maybe only its status.
            version = self._version_with_plan(choice)
            if not version:
                raise
            self._post_binding(choice, version)
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
        try:
            now = self._client.get(pod_path(pod.namespace, pod.name), Pod)
        except ApiServerError:
            now = Pod()
        if now.metadata.uid == pod.uid and now.spec.node_name == choice.node:
            return
        self._verbs.holdings.doubt(pod.uid)
        log.warning("%s: whether it was bound to %s is not known", pod.title, choice.node)
        raise RefusedError(
            f"whether {pod.title} was bound to {choice.node} is not known yet: {trouble}"
        ) from trouble

    def _undo(self, choice: Choice, version: str) -> None:
        """Only on the very pod that we wrote to: if anybody changed it since, the plan that is
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
        self._verbs.holdings.give_back(pod.uid)

    def _check_leader(self) -> None:
        if not self._may_act():
            raise RefusedError("this extender is not the leader any more")
