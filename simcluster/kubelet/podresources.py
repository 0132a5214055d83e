"""The kubelet's pod resources service, version v1, with its rate limit and its moods."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

    def _list(
        self, request: api.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> api.ListPodResourcesResponse:
        self._admit(context)
        self.before_answer()
        self._manager.update_allocated()
        self.lists += 1
        held = self._manager.ids_by_container()
        return api.ListPodResourcesResponse(
            pod_resources=[_pod(pod, held) for pod in self._listed_pods()]
        )

    def _allocatable(
        self, request: api.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> api.AllocatableResourcesResponse:
        self._admit(context)
        with self._manager.mutex:
            return api.AllocatableResourcesResponse(
                devices=[
                    api.ContainerDevices(resource_name=resource, device_ids=[each])
                    for resource, ids in self._manager.healthy.items()
                    for each in sorted(ids)
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


def _pod(pod: Pod, held: dict[tuple[str, str], dict[str, frozenset[str]]]) -> api.PodResources:
    made = api.PodResources(name=pod.name, namespace=pod.namespace)
    for container in pod.containers:
        if container.role is Role.INIT:
            continue
        listed = made.containers.add(name=container.name)
        for resource, ids in held.get((pod.uid, container.name), {}).items():
            for each in ids:
                listed.devices.add(resource_name=resource, device_ids=[each])
    return made
