"""The stand-in itself: watches pods and nodes, and gives pending pods their turn."""

import random
import threading
import time
from collections import Counter
from typing import Any

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiServerError
from aliquot.kubernetes.events import EventRecorder, pod_reference
from aliquot.kubernetes.paths import NODES, PODS, pod_path
from aliquot.kubernetes.reflector import Reflector
from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol.names import SCHEDULER_NAME
from simcluster.scheduler.cycle import best_node, failure_of, own_reasons, requests_of
from simcluster.scheduler.extender import Extender, ExtenderError
from simcluster.scheduler.queue import Queue

__all__ = ["Scheduler"]

Object = dict[str, Any]


class Scheduler:
    """For pods that name it. Like kube-scheduler it decides about one at a time; unlike it, it
    waits for each binding, never preempts, and knows no plugins but node resources."""

    def __init__(
        self, client: ApiClient, extender: Extender, *, name: str = SCHEDULER_NAME, seed: int = 0
    ) -> None:
        self._client = client
        self._extender = extender
        self._name = name
        self._chance = random.Random(seed)
        self._events = EventRecorder(client, name, name)
        self._changed = threading.Condition()
        self._queue = Queue()
        self._pods: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._assumed: dict[str, str] = {}
        """Nodes of pods that are bound; the watch may not have told yet."""
        self._stopping = False
        kind = dict[str, Any]
        self._watches = [
            Reflector(client, NODES, kind, self._replace_nodes, self._change_node),
            Reflector(client, PODS, kind, self._replace_pods, self._change_pod),
        ]
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._events.start()
        for each in self._watches:
            each.start()
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        for each in self._watches:
            each.stop()
        self._events.stop()
        self._extender.close()

    def __enter__(self) -> "Scheduler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What the watches tell.

    def _replace_nodes(self, nodes: list[Object]) -> None:
        with self._changed:
            self._nodes = {each["metadata"]["name"]: each for each in nodes}
            self._stir()

    def _change_node(self, change: Change[Object]) -> None:
        with self._changed:
            name = change.object["metadata"]["name"]
            if change.kind is ChangeKind.DELETED:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = change.object
            self._stir()

    def _replace_pods(self, pods: list[Object]) -> None:
        with self._changed:
            told = {_uid(each): each for each in pods}
            for uid in set(self._pods) - set(told):
                self._forget(uid)
            for each in pods:
                self._take_in(each)
            self._stir()

    def _change_pod(self, change: Change[Object]) -> None:
        with self._changed:
            if change.kind is ChangeKind.DELETED:
                self._forget(_uid(change.object))
            else:
                self._take_in(change.object)

    def _take_in(self, pod: Object) -> None:
        uid, before = _uid(pod), self._pods.get(_uid(pod))
        self._pods[uid] = pod
        if pod["spec"].get("nodeName"):
            self._assumed.pop(uid, None)
            self._queue.remove(uid)
            if _is_over(pod) and before is not None and not _is_over(before):
                self._stir()  # there is room where it was
        elif _is_over(pod) or pod["metadata"].get("deletionTimestamp"):
            self._queue.remove(uid)
        elif pod["spec"].get("schedulerName") == self._name and uid not in self._assumed:
            self._queue.add(uid, pod["spec"].get("priority") or 0, time.monotonic())
            if before is not None and _without_status(before) != _without_status(pod):
                self._queue.stir(uid)
            self._changed.notify_all()

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._assumed.pop(uid, None)
        self._queue.remove(uid)
        self._stir()

    def _stir(self) -> None:
        self._queue.stir()
        self._changed.notify_all()

    # Turns.

    def _run(self) -> None:
        with self._changed:
            # Who does not know all nodes and pods yet would say that a pod fits nowhere.
            while not self._stopping and not all(each.synced.is_set() for each in self._watches):
                self._changed.wait(0.02)
        while True:
            with self._changed:
                while not self._stopping and self._queue.next(time.monotonic()) is None:
                    next_s = self._queue.next_s()
                    pause_s = None if next_s is None else max(next_s - time.monotonic(), 0.0)
                    self._changed.wait(pause_s)
                turn = self._queue.next(time.monotonic())
                if self._stopping or turn is None:
                    return
                uid, mark = turn
                pod = self._pods[uid]
            try:
                reason, message = "Unschedulable", self._place(pod)
            except ExtenderError as error:
                reason, message = "SchedulerError", str(error)
            if message:
                with self._changed:
                    again = reason == "SchedulerError"
                    self._queue.failed(uid, mark, time.monotonic(), again=again)
                self._tell_failure(pod, reason, message)

    def _place(self, pod: Object) -> str:
        """Binds the pod, or answers why it fits nowhere."""
        with self._changed:
            nodes = dict(self._nodes)
            taken = self._taken()
        failed = {
            name: reasons
            for name, node in nodes.items()
            if (reasons := own_reasons(pod, node, taken.get(name, {})))
        }
        passed = [name for name in nodes if name not in failed]
        if passed:
            filtered = self._extender.filter(pod, passed)
            failed |= {name: [text] for name, text in filtered.failed.items()}
            passed = filtered.passed
        if not passed:
            return failure_of(len(nodes), (text for each in failed.values() for text in each))
        # Where there is no choice, nobody is asked for scores.
        scores = self._extender.prioritize(pod, passed) if len(passed) > 1 else {passed[0]: 0}
        chosen = best_node(scores, self._chance)
        self._extender.bind(pod, chosen)
        with self._changed:
            if not (self._pods.get(_uid(pod)) or pod)["spec"].get("nodeName"):
                self._assumed[_uid(pod)] = chosen
            self._queue.remove(_uid(pod))
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        text = f"Successfully assigned {namespace}/{name} to {chosen}"
        self._events.emit(pod_reference(namespace, name, _uid(pod)), "Scheduled", text)
        return ""

    def _taken(self) -> dict[str, Counter[str]]:
        taken: dict[str, Counter[str]] = {}
        for uid, pod in self._pods.items():
            node = pod["spec"].get("nodeName") or self._assumed.get(uid)
            if node and not _is_over(pod):
                taken.setdefault(node, Counter()).update(requests_of(pod))
        return taken

    def _tell_failure(self, pod: Object, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        about = pod_reference(namespace, name, metadata["uid"])
        self._events.emit(about, "FailedScheduling", message, "Warning")
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        condition["message"] = message
        try:
            self._client.patch(
                f"{pod_path(namespace, name)}/status",
                {"status": {"conditions": [condition]}},
                kind="strategic",
            )
        except ApiServerError:
            pass  # it is gone, or the next attempt tells


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _without_status(pod: Object) -> Object:
    metadata = {name: text for name, text in pod["metadata"].items() if name != "resourceVersion"}
    return {"metadata": metadata, "spec": pod["spec"]}
