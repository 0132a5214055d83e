"""The stand-in itself: a kubelet that a test starts, restarts, breaks and gives pods to."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from simcluster.kubelet import checkpoint
from simcluster.kubelet.devicemanager import AllocationError, DeviceManager
from simcluster.kubelet.endpoint import CallError, Endpoint
from simcluster.kubelet.podresources import PodResourcesService
from simcluster.kubelet.pods import Container, Pod
from simcluster.kubelet.runoptions import RunOptions, merge

__all__ = ["AdmissionError", "Kubelet", "StartError"]

PATIENCE_S = 60.0
BOTH = (MEMORY_RESOURCE, COMPUTE_RESOURCE)


class AdmissionError(Exception):
    """UnexpectedAdmissionError: the pod has failed for good."""


class StartError(Exception):
    """A container that could not start; the kubelet tries it again."""


class Kubelet:
    """`folder` stands for /var/lib/kubelet; keep its path short, for sockets."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        self.folder = folder
        self.plugins = folder / "device-plugins"
        self.checkpoint = self.plugins / checkpoint.NAME
        self._chance = random.Random(seed)
        self._admission = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._started: set[tuple[str, str]] = set()
        self.registrations: list[api.RegisterRequest] = []
        self.manager: DeviceManager
        self.podresources: PodResourcesService
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor
        self._all_endpoints: list[Endpoint] = []

    # Life.

    def start(self) -> "Kubelet":
        """As the real one does: everything in the plugins' folder but the checkpoint goes."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        (self.folder / "pod-resources").mkdir(exist_ok=True)
        for path in self.plugins.iterdir():
            if path != self.checkpoint and not path.is_dir():
                path.unlink()
        self.manager = DeviceManager(self.checkpoint, self.active_pods, self._chance)
        listing = self.folder / "pod-resources" / "kubelet.sock"
        listing.unlink(missing_ok=True)
        self.podresources = PodResourcesService(listing, self.manager, self.active_pods)
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool)
        self._server.add_generic_rpc_handlers(
            (wire.handlers(api.DESCRIPTOR, "Registration", {"Register": self._register}),)
        )
        self._server.add_insecure_port(wire.address(self.plugins / "kubelet.sock"))
        self._server.start()
        return self

    def stop(self) -> None:
        if self._server is None:
            return
        self._server.stop(None).wait()
        self._server = None
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.podresources.stop()
        for endpoint in self._all_endpoints:
            endpoint.close()
        self._all_endpoints.clear()

    def crash(self) -> None:
        """Gone without a word: its socket is left behind, and nobody listens there."""
        self.stop()
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(self.plugins / "kubelet.sock"))

    def begin_start(self) -> None:
        """As far as a new one gets while its container runtime is away: it answers for pod
        resources, but its device manager has not read who holds what, nor touched a socket."""
        manager = DeviceManager(self.folder / "not-read-yet", self.active_pods, self._chance)
        listing = self.folder / "pod-resources" / "kubelet.sock"
        listing.unlink(missing_ok=True)
        self.podresources = PodResourcesService(listing, manager, list)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> "Kubelet":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Plugins.

    def _register(self, request: api.RegisterRequest, context: grpc.ServicerContext) -> api.Empty:
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unsupported version")
        manager = self.manager
        try:
            # Asks the plugin for its options: who registers before it serves hangs itself up.
            endpoint = Endpoint(
                request.resource_name,
                self.plugins / request.endpoint,
                manager.take_list,
                manager.plugin_stopped,
            )
        except CallError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"failed to dial device plugin: {error}")
        self._all_endpoints.append(endpoint)
        manager.connect(endpoint)
        endpoint.follow()
        self.registrations.append(request)
        return api.Empty()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Until something about plugins or ids has become true."""
        with self.manager.changed:
            if not self.manager.changed.wait_for(condition, PATIENCE_S):
                raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")

    def wait_ready(self, *resources: str) -> None:
        """Until these resources have healthy ids."""
        wanted = resources or BOTH
        self.wait_for(
            lambda: all(self.manager.healthy.get(each) for each in wanted),
            f"healthy ids of {', '.join(wanted)}",
        )

    def wait_gone(self, *resources: str) -> None:
        """Until these resources have no healthy id."""
        wanted = resources or BOTH
        self.wait_for(
            lambda: not any(self.manager.healthy.get(each) for each in wanted),
            f"no healthy ids of {', '.join(wanted)}",
        )

    def allocatable(self, resource: str) -> int:
        with self.manager.mutex:
            return len(self.manager.healthy.get(resource, ()))

    # Pods.

    def active_pods(self) -> list[Pod]:
        """All that have not ended, with the one that is being admitted."""
        return list(self._pods.values())

    def admit(self, pod: Pod) -> None:
        """One pod after the other; a refusal is final."""
        with self._admission:
            self._pods[pod.uid] = pod
            try:
                for container in pod.in_order:
                    self.manager.allocate(pod, container)
            except AllocationError as error:
                del self._pods[pod.uid]
                raise AdmissionError(
                    f"Allocate failed due to {error}, which is unexpected"
                ) from None

    def start_container(self, pod: Pod, name: str = "main") -> RunOptions:
        """PreStartContainer of each resource, then what the container is started with."""
        container = pod.container(name)
        for resource in self.manager.resource_order(list(container.limits)):
            self._pre_start(pod, container, resource)
        ids = self.manager.ids_of(pod, name)
        if set(ids) != set(container.limits):
            raise StartError(f"{pod.name}/{name} lacks {set(container.limits) - set(ids)}")
        return merge(
            self.manager.entries[pod.uid, name, resource].response for resource in sorted(ids)
        )

    def start_in_time(
        self, pod: Pod, name: str = "main", pause_s: float = 0.1, patience_s: float = PATIENCE_S
    ) -> RunOptions:
        """Tries again, as the pod's worker does, until it passes."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return self.start_container(pod, name)
            except StartError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(pause_s)

    def run(self, pod: Pod) -> dict[str, RunOptions]:
        """Admits a pod and starts all its containers."""
        self.admit(pod)
        return {each.name: self.start_container(pod, each.name) for each in pod.in_order}

    def finish(self, pod: Pod) -> None:
        """It has ended or was deleted. Its ids are freed inside the next allocation, not now."""
        self._pods.pop(pod.uid, None)

    def ids_of(self, pod: Pod, name: str = "main") -> dict[str, set[str]]:
        return self.manager.ids_of(pod, name)

    def _pre_start(self, pod: Pod, container: Container, resource: str) -> None:
        endpoint = self.manager.endpoints.get(resource)
        # After a restart, until the plugin has registered, nobody knows that it wants this call.
        if endpoint is None or not endpoint.options.pre_start_required:
            return
        ids = self.manager.ids_of(pod, container.name).get(resource, set())
        try:
            endpoint.pre_start(sorted(ids, key=lambda _: self._chance.random()))
        except CallError as error:
            raise StartError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from None

    # Faults.

    @contextmanager
    def order(self, first: str) -> Iterator[None]:
        """Visits this resource first, for once not by chance."""
        usual = self.manager.resource_order
        self.manager.resource_order = lambda names: sorted(names, key=lambda name: name != first)
        try:
            yield
        finally:
            self.manager.resource_order = usual

    @contextmanager
    def in_flight(self, act: Callable[[str, set[str]], None]) -> Iterator[None]:
        """Does something just before each Allocate, while its ids are in flight."""
        self.manager.in_flight = act
        try:
            yield
        finally:
            self.manager.in_flight = None

    def forget(self, pod: Pod, name: str = "main") -> None:
        """Takes a container's ids for free, as the real one can after a list at a bad moment."""
        with self.manager.mutex, contextlib.suppress(KeyError):
            for resource, ids in self.manager.ids_of(pod, name).items():
                self.manager.allocated[resource] -= ids
