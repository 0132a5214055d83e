"""The kubelet's side towards the API server: bound pods become processes, and their phases go back.

One thread for each pod, as the kubelet has one worker for each. The node's status follows what the
device manager has."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiServerError
from aliquot.kubernetes.paths import PODS, node_path, pod_path
from aliquot.kubernetes.reflector import Reflector
from aliquot.kubernetes.watch import Change, ChangeKind
from simcluster.kubelet.pods import Container, Pod
from simcluster.kubelet.runoptions import RunOptions
from simcluster.kubelet.stand_in import BOTH, AdmissionError, Kubelet, StartError

__all__ = ["Launch", "PodWorkers"]

Object = dict[str, Any]
Launch = Callable[[Object, RunOptions], subprocess.Popen[Any]]
"""Starts a pod's only container, given the pod and what the container is started with."""

LEAVE_S = 10.0
"""How long a process may take to end when it is asked to."""
RETRY_S = 0.2


@dataclass(slots=True)
class _Worker:
    pod: Pod
    process: subprocess.Popen[Any] | None = None
    removed: bool = False


class PodWorkers:
    """Pods with one container each. A container is never started again (restartPolicy Never)."""

    def __init__(self, kubelet: Kubelet, client: ApiClient, node: str, launch: Launch) -> None:
        self._kubelet = kubelet
        self._client = client
        self._node = node
        self._launch = launch
        self._guard = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._watch = Reflector(
            client,
            PODS,
            dict[str, Any],
            self._replace,
            self._change,
            field_selector=f"spec.nodeName={node}",
        )
        self._status = threading.Thread(target=self._follow_devices, name="node status")

    def start(self) -> None:
        self._status.start()
        self._watch.start()

    def stop(self) -> None:
        """Every process has ended after it."""
        self._stopping.set()
        self._watch.stop()
        with self._kubelet.manager.changed:
            self._kubelet.manager.changed.notify_all()
        with self._guard:
            workers, threads = list(self._workers.values()), list(self._threads)
        for worker in workers:
            if worker.process is not None:
                worker.process.terminate()
        for thread in [*threads, self._status]:
            if thread.ident is not None:
                thread.join()

    def process_of(self, uid: str) -> subprocess.Popen[Any] | None:
        """What `kubectl attach` would reach."""
        with self._guard:
            worker = self._workers.get(uid)
            return worker.process if worker else None

    # What the watch tells.

    def _replace(self, pods: list[Object]) -> None:
        for each in pods:
            self._change(Change(ChangeKind.ADDED, each))

    def _change(self, change: Change[Object]) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        ends = change.kind is ChangeKind.DELETED or pod["metadata"].get("deletionTimestamp")
        with self._guard:
            worker = self._workers.get(uid)
            if ends and worker is not None:
                worker.removed = True
                if worker.process is not None:
                    worker.process.terminate()
            if ends or worker is not None or self._stopping.is_set():
                return
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                return
            worker = self._workers[uid] = _Worker(_as_pod(pod))
            thread = threading.Thread(
                target=self._work, args=(pod, worker), name=f"pod {pod['metadata']['name']}"
            )
            self._threads.append(thread)
            thread.start()

    # A worker's life.

    def _work(self, manifest: Object, worker: _Worker) -> None:
        pod = worker.pod
        try:
            self._kubelet.admit(pod)
        except AdmissionError as error:
            self._tell(pod, "Failed", reason="UnexpectedAdmissionError", message=str(error))
            return
        code = 0
        try:
            code = self._run(manifest, worker)
        finally:
            # Before anybody hears of its end: who is bound for that reason finds the ids free.
            self._kubelet.finish(pod)
        if worker.removed:
            self._remove(pod)
        else:
            ended = {"terminated": {"exitCode": code}}
            self._tell(pod, "Failed" if code else "Succeeded", container=ended)

    def _run(self, manifest: Object, worker: _Worker) -> int:
        """Until it has ended; its exit code."""
        options = self._prepare(worker)
        if options is None:
            return 0
        try:
            process = self._launch(manifest, options)
        except Exception as error:
            self._tell(worker.pod, "Failed", reason="StartError", message=str(error))
            raise
        with self._guard:
            worker.process = process
            leaves = worker.removed or self._stopping.is_set()
        if leaves:
            process.terminate()
        else:
            self._tell(worker.pod, "Running", container={"running": {}})
        return self._await_end(worker, process)

    def _prepare(self, worker: _Worker) -> RunOptions | None:
        """Tries as long as the plugin holds the container back; None when nobody wants it now."""
        while not worker.removed and not self._stopping.is_set():
            try:
                return self._kubelet.start_container(worker.pod)
            except StartError as error:
                waiting = {"waiting": {"reason": "RunContainerError", "message": str(error)}}
                self._tell(worker.pod, "Pending", container=waiting)
                self._stopping.wait(RETRY_S)
        return None

    def _await_end(self, worker: _Worker, process: subprocess.Popen[Any]) -> int:
        asked_s: float | None = None
        while True:
            try:
                return process.wait(RETRY_S)
            except subprocess.TimeoutExpired:
                if not (worker.removed or self._stopping.is_set()):
                    continue
                asked_s = asked_s or time.monotonic()
                if time.monotonic() - asked_s > LEAVE_S:
                    process.kill()

    # What the API server is told.

    def _tell(self, pod: Pod, phase: str, container: Object | None = None, **why: str) -> None:
        conditions = [{"type": "PodScheduled", "status": "True", "reason": None, "message": None}]
        status: Object = {"phase": phase, "conditions": conditions, **why}
        if container is not None:
            status["containerStatuses"] = [{"name": pod.containers[0].name, "state": container}]
        self._write(f"{pod_path(pod.namespace, pod.name)}/status", {"status": status})

    def _remove(self, pod: Pod) -> None:
        try:
            self._client.delete(pod_path(pod.namespace, pod.name), uid=pod.uid, grace_s=0)
        except ApiServerError:
            pass  # somebody was faster

    def _follow_devices(self) -> None:
        told: dict[str, str] = {}
        while not self._stopping.is_set():
            manager = self._kubelet.manager
            with manager.changed:
                now = {each: str(self._kubelet.allocatable(each)) for each in BOTH}
                if now == told:
                    manager.changed.wait(RETRY_S)
                    continue
            amounts = {"capacity": now, "allocatable": now}
            if self._write(f"{node_path(self._node)}/status", {"status": amounts}):
                told = now

    def _write(self, path: str, patch: Object) -> bool:
        while not self._stopping.is_set():
            try:
                self._client.patch(path, patch, kind="strategic")
            except ApiServerError as error:
                if getattr(error, "not_found", False):
                    return False
                self._stopping.wait(RETRY_S)
            else:
                return True
        return False


def _as_pod(manifest: Object) -> Pod:
    (container,) = manifest["spec"]["containers"]
    limits = (container.get("resources") or {}).get("limits") or {}
    counts = {name: int(amount) for name, amount in limits.items() if name in BOTH}
    metadata = manifest["metadata"]
    return Pod(
        metadata["name"],
        (Container(container["name"], counts),),
        metadata["namespace"],
        metadata["uid"],
    )
