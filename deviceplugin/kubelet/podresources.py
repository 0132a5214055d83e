"""Asks the kubelet which container holds which ids (pod resources API, version v1)."""

import time
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.booking.sources import Held
from deviceplugin.kubelet import wire
from deviceplugin.kubelet.holdings import HoldingsReader, of_others
from deviceplugin.kubelet.proto import holdings_pb2 as answers
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
    def __init__(
        self, socket: Path, traffic: Traffic, reader: HoldingsReader | None = None
    ) -> None:
        self._socket = socket
        self._traffic = traffic
        self._channel = grpc.insecure_channel(wire.address(socket), options=_OPTIONS)
        self._reader = reader or HoldingsReader()

    def list_now(self, timeout_s: float = IN_CALL_TIMEOUT_S) -> list[Held]:
        """For GetPreferredAllocation, in which no ids are in flight."""
        return self._reader.read(
            self._call("List", api.ListPodResourcesRequest(), answers.Holdings, timeout_s)
        )

    def list_when_quiet(self, timeout_s: float = BACKGROUND_TIMEOUT_S) -> list[Held]:
        """For everybody else: first waits until no Allocate is open or about to come."""
        deadline = time.monotonic() + timeout_s
        if not self._traffic.wait_quiet(timeout_s):
            raise PodResourcesError(f"allocations went on for {timeout_s:g} s without a pause")
        return self.list_now(max(0.1, deadline - time.monotonic()))

    def allocatable(self, timeout_s: float = BACKGROUND_TIMEOUT_S) -> dict[str, frozenset[str]]:
        """All ids that other plugins of this node advertise, by resource."""
        request = api.AllocatableResourcesRequest()
        return of_others(
            self._call("GetAllocatableResources", request, answers.Allocatable, timeout_s)
        )

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: Any, answer: type[Any], timeout_s: float) -> Any:
        call = wire.caller(self._channel, api.DESCRIPTOR, "PodResourcesLister", method, answer)
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
