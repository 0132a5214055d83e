"""One resource's device plugin server: a thin layer of gRPC over what the allocator decides."""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc

from deviceplugin.booking.errors import Refusal, Retry
from deviceplugin.kubelet import wire
from deviceplugin.kubelet.advertisement import Advertisement
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from deviceplugin.kubelet.traffic import Traffic

__all__ = ["SOCKET_PREFIX", "Decisions", "ResourceServer"]

SOCKET_PREFIX = "aliquot-"
"""What our sockets start with in the folder that all plugins share."""

THREADS = 16
"""Lists that stay open, and containers of several pods that start at the same time."""

STOP_GRACE_S = 2.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class Decisions(Protocol):
    """What answers the kubelet, for one resource; each may raise a Refusal or a Retry."""

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Which ids a container shall have; may ask the kubelet for its list."""

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """What the container with these ids gets; never asks anybody."""

    def pre_start(self, ids: Sequence[str]) -> None:
        """Returns when the container with these ids may start."""


class ResourceServer:
    """A socket of a fresh name; a new one is made for every registration."""

    def __init__(
        self,
        resource: str,
        folder: Path,
        decisions: Decisions,
        advertisement: Advertisement,
        traffic: Traffic,
        stream_ended: Callable[[], None],
    ) -> None:
        self.resource = resource
        kind = resource.rpartition("/")[2]
        self.socket = folder / f"{SOCKET_PREFIX}{kind}-{secrets.token_hex(4)}.sock"
        self._decisions = decisions
        self._advertisement = advertisement
        self._traffic = traffic
        self._stream_ended = stream_ended
        self._streams = 0
        self._counting = threading.Lock()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{resource}-call")
        self._server = grpc.server(self._pool, options=wire.SOCKET_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (
                wire.handlers(
                    api.DESCRIPTOR,
                    "DevicePlugin",
                    {
                        "GetDevicePluginOptions": lambda *_: self.options,
                        "ListAndWatch": self._list_and_watch,
                        "GetPreferredAllocation": self._get_preferred_allocation,
                        "Allocate": self._allocate,
                        "PreStartContainer": self._pre_start_container,
                    },
                ),
            )
        )

    options = api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )

    @property
    def is_watched(self) -> bool:
        """Whether the kubelet follows our list of ids."""
        return self._streams > 0

    def start(self) -> None:
        self._server.add_insecure_port(wire.address(self.socket))
        self._server.start()

    def stop(self) -> None:
        """Lets open calls end, then takes the socket away."""
        self._stopping.set()
        self._advertisement.ring()
        self._server.stop(STOP_GRACE_S).wait()
        self._pool.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(OSError):
            self.socket.unlink(missing_ok=True)

    def _list_and_watch(
        self, _request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        with self._counting:
            self._streams += 1
        context.add_callback(self._advertisement.ring)
        sent = -1
        try:
            while True:
                bell = self._advertisement.bell
                if not context.is_active() or self._stopping.is_set():
                    return
                version, message = self._advertisement.current()
                if version != sent:
                    sent = version
                    yield message
                else:
                    self._advertisement.wait(bell)
        finally:
            with self._counting:
                self._streams -= 1
            if not self._stopping.is_set():
                self._stream_ended()

    def _get_preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> api.PreferredAllocationResponse:
        def choose() -> api.PreferredAllocationResponse:
            return api.PreferredAllocationResponse(
                container_responses=[
                    api.ContainerPreferredAllocationResponse(
                        # A slice is a list at once; there may be tens of thousands.
                        deviceIDs=self._decisions.prefer(
                            container.available_deviceIDs[:],
                            container.must_include_deviceIDs[:],
                            container.allocation_size,
                        )
                    )
                    for container in request.container_requests
                ]
            )

        with self._traffic.choosing():
            return self._answer("GetPreferredAllocation", context, choose)

    def _allocate(
        self, request: api.AllocateRequest, context: grpc.ServicerContext
    ) -> api.AllocateResponse:
        def allocate() -> api.AllocateResponse:
            return api.AllocateResponse(
                container_responses=[
                    self._decisions.allocate(container.devices_ids[:])
                    for container in request.container_requests
                ]
            )

        with self._traffic.allocating():
            return self._answer("Allocate", context, allocate)

    def _pre_start_container(
        self, request: api.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> api.PreStartContainerResponse:
        self._answer(
            "PreStartContainer", context, lambda: self._decisions.pre_start(request.devices_ids[:])
        )
        return api.PreStartContainerResponse()

    def _answer(self, call: str, context: Any, decide: Callable[[], T]) -> T:
        try:
            return decide()
        except Refusal as refusal:
            log.warning("%s of %s refused: %s", call, self.resource, refusal)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        except Retry as reason:
            log.info("%s of %s has to wait: %s", call, self.resource, reason)
            context.abort(grpc.StatusCode.UNAVAILABLE, str(reason))
        except Exception as error:
            log.exception("%s of %s failed", call, self.resource)
            context.abort(
                grpc.StatusCode.INTERNAL,
                f"the aliquot node agent failed in {call}: {error}; its log has the details",
            )
        raise AssertionError("abort always raises")
