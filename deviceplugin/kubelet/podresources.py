"""Asks the kubelet which container holds which ids (pod resources API, version v1)."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.booking.ids import RESOURCES
from deviceplugin.booking.sources import ContainerKey, Held
from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import pod_resources_pb2 as api
from deviceplugin.kubelet.traffic import Traffic

__all__ = ["PodResources", "PodResourcesError"]

IN_CALL_TIMEOUT_S = 0.5
"""Inside an RPC of the kubelet: every pod start of the node waits meanwhile, and without the list a
container's halves find each other only for a second."""
BACKGROUND_TIMEOUT_S = 10.0
REFUSED_PAUSE_S = 0.015
"""The kubelet answers a hundred lists a second and refuses more."""

_OPTIONS = (
    *wire.SOCKET_OPTIONS,
    # After a kubelet's restart gRPC would pause for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class PodResourcesError(Exception):
    """The kubelet gave no list; the text says why."""


class PodResources:
    def __init__(self, socket: Path, traffic: Traffic) -> None:
        self._socket = socket
        self._traffic = traffic
        self._channel = grpc.insecure_channel(wire.address(socket), options=_OPTIONS)

    def list_now(self, timeout_s: float = IN_CALL_TIMEOUT_S) -> list[Held]:
        """For GetPreferredAllocation, in which no ids are in flight."""
        return _held(self._call("List", api.ListPodResourcesRequest(), timeout_s).pod_resources)

    def list_when_quiet(self, timeout_s: float = BACKGROUND_TIMEOUT_S) -> list[Held]:
        """For everybody else: first waits until no Allocate is open or about to come."""
        deadline = time.monotonic() + timeout_s
        if not self._traffic.wait_quiet(timeout_s):
            raise PodResourcesError(f"allocations went on for {timeout_s:g} s without a pause")
        return self.list_now(max(0.1, deadline - time.monotonic()))

    def allocatable(self, timeout_s: float = BACKGROUND_TIMEOUT_S) -> dict[str, frozenset[str]]:
        """All ids that other plugins of this node advertise, by resource."""
        answer = self._call("GetAllocatableResources", api.AllocatableResourcesRequest(), timeout_s)
        return _by_resource(each for each in answer.devices if each.resource_name not in RESOURCES)

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: Any, timeout_s: float) -> Any:
        call = wire.caller(self._channel, api.DESCRIPTOR, "PodResourcesLister", method)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return call(request, timeout=max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as error:
                left_s = deadline - time.monotonic()
                if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and left_s > REFUSED_PAUSE_S:
                    time.sleep(REFUSED_PAUSE_S)
                    continue
                raise PodResourcesError(
                    f"{self._socket} did not answer {method}: "
                    f"{error.code().name}: {error.details()}"
                ) from None


def _held(pods: Iterable[api.PodResources]) -> list[Held]:
    return [
        Held(ContainerKey(pod.namespace, pod.name, container.name), _by_resource(container.devices))
        for pod in pods
        for container in pod.containers
    ]


def _by_resource(devices: Iterable[api.ContainerDevices]) -> dict[str, frozenset[str]]:
    found: dict[str, list[str]] = {}
    for entry in devices:
        # A slice is a list at once; anything that iterates asks for one id after the other.
        found.setdefault(entry.resource_name, []).extend(entry.device_ids[:])
    # Interned: the same thousands of ids come again and again, and some are kept for long.
    return {resource: frozenset(map(sys.intern, some)) for resource, some in found.items()}
