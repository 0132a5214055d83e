"""The kubelet's pod resources service, version v1, with its rate limit and its moods."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import pod_resources_pb2 as api
from simcluster.kubelet.devicemanager import DeviceManager
from simcluster.kubelet.pods import Pod, Role

__all__ = ["PodResourcesService"]

LISTS_PER_S = 100
LISTS_AT_ONCE = 10


class PodResourcesService:
    def __init__(
        self, socket: Path, manager: DeviceManager, listed_pods: Callable[[], list[Pod]]
    ) -> None:
        self._manager = manager
        self._listed_pods = listed_pods
        self.error = ""
        """When set, every call fails with it."""
        self.delay_s = 0.0
        self.before_answer: Callable[[], object] = lambda: None
        """Called before a list is made."""
        self.lists = 0
        """How many have been answered."""
        self._tokens = float(LISTS_AT_ONCE)
        self._refilled_s = time.monotonic()
        self._limit = threading.Lock()
        self._made: dict[_Listed, bytes] = {}
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        self._server.add_generic_rpc_handlers(
            (
                wire.handlers(
                    api.DESCRIPTOR,
                    "PodResourcesLister",
                    {"List": self._list, "GetAllocatableResources": self._allocatable},
                ),
            )
        )
        self._server.add_insecure_port(wire.address(socket))
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _list(self, request: api.ListPodResourcesRequest, context: grpc.ServicerContext) -> bytes:
        self._admit(context)
        self.before_answer()
        self._manager.update_allocated()
        self.lists += 1
        held = self._manager.ids_by_container()
        before, self._made = self._made, {}
        for pod in self._listed_pods():
            listed = _Listed.of(pod, held)
            # Go makes tens of thousands of small messages in no time; here they are made once.
            self._made[listed] = before.get(listed) or listed.serialized()
        return b"".join(self._made.values())

    def _allocatable(
        self, request: api.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> api.AllocatableResourcesResponse:
        self._admit(context)
        with self._manager.mutex:
            healthy = {resource: sorted(ids) for resource, ids in self._manager.healthy.items()}
        return api.AllocatableResourcesResponse(
            devices=[
                api.ContainerDevices(resource_name=resource, device_ids=[each])
                for resource, ids in healthy.items()
                for each in ids
            ]
        )

    def _admit(self, context: grpc.ServicerContext) -> None:
        time.sleep(self.delay_s)
        if self.error:
            context.abort(grpc.StatusCode.UNAVAILABLE, self.error)
        with self._limit:
            now = time.monotonic()
            self._tokens = min(LISTS_AT_ONCE, self._tokens + (now - self._refilled_s) * LISTS_PER_S)
            self._refilled_s = now
            if self._tokens < 1:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            self._tokens -= 1


@dataclass(frozen=True)
class _Listed:
    """A pod as it is listed."""

    uid: str
    namespace: str
    name: str
    containers: tuple[tuple[str, tuple[tuple[str, frozenset[str]], ...]], ...]
    """With the ids of each resource."""

    @classmethod
    def of(cls, pod: Pod, held: dict[tuple[str, str], dict[str, frozenset[str]]]) -> "_Listed":
        containers = tuple(
            (each.name, tuple(held.get((pod.uid, each.name), {}).items()))
            for each in pod.containers
            if each.role is not Role.INIT
        )
        return cls(pod.uid, pod.namespace, pod.name, containers)

    def serialized(self) -> bytes:
        """As a list with just this pod; lists one after the other are one list."""
        answer = api.ListPodResourcesResponse()
        made = answer.pod_resources.add(name=self.name, namespace=self.namespace)
        for name, resources in self.containers:
            listed = made.containers.add(name=name)
            for resource, ids in resources:
                for each in ids:
                    listed.devices.add(resource_name=resource, device_ids=[each])
        return answer.SerializeToString()
