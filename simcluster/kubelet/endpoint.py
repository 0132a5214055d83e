"""The kubelet's end of one registered plugin socket."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import device_plugin_pb2 as api

__all__ = ["CallError", "Endpoint", "OtherPlugin"]

CALL_TIMEOUT_S = 60
"""The real one waits for ever; a test should fail instead."""


class CallError(Exception):
    """A plugin's error, in the words that stand in the pod's status."""

    def __init__(self, error: Any) -> None:
        code = "".join(word.capitalize() for word in error.code().name.split("_"))
        super().__init__(f"rpc error: code = {code} desc = {error.details()}")


class Endpoint:
    """Connected for its whole life: when the stream of ids ends, so does the endpoint."""

    def __init__(
        self,
        resource: str,
        socket: Path,
        on_list: Callable[["Endpoint", list[api.Device]], None],
        on_stop: Callable[["Endpoint"], None],
    ) -> None:
        self.resource = resource
        self.socket = socket
        # No options: 4 MiB is the most that the real one receives, too.
        self._channel = grpc.insecure_channel(
            wire.address(socket), options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self.options = self.get_options()
        self.stopped = False
        self._stream = wire.caller(self._channel, api.DESCRIPTOR, "DevicePlugin", "ListAndWatch")(
            api.Empty()
        )
        self._follower = threading.Thread(
            target=self._follow, args=(on_list, on_stop), name=f"kubelet-{resource}", daemon=True
        )

    def get_options(self) -> api.DevicePluginOptions:
        options: api.DevicePluginOptions = self._call("GetDevicePluginOptions", api.Empty())
        return options

    def follow(self) -> None:
        """Begins to take in the plugin's lists."""
        self._follower.start()

    def allocate(self, ids: list[str]) -> api.ContainerAllocateResponse:
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=ids)]
        )
        responses = self._call("Allocate", request).container_responses
        if not responses:
            raise AssertionError("no containers return in allocation response")
        response: api.ContainerAllocateResponse = responses[0]
        return response

    def prefer(self, available: list[str], must_include: list[str], size: int) -> set[str]:
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available,
                    must_include_deviceIDs=must_include,
                    allocation_size=size,
                )
            ]
        )
        responses = self._call("GetPreferredAllocation", request).container_responses
        return set(responses[0].deviceIDs) if responses else set()

    def pre_start(self, ids: list[str]) -> None:
        self._call("PreStartContainer", api.PreStartContainerRequest(devices_ids=ids))

    def close(self) -> None:
        self._stream.cancel()
        self._channel.close()
        if self._follower.is_alive():
            self._follower.join()

    def _call(self, method: str, request: Any) -> Any:
        call = wire.caller(self._channel, api.DESCRIPTOR, "DevicePlugin", method)
        try:
            return call(request, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            raise CallError(error) from None

    def _follow(
        self,
        on_list: Callable[["Endpoint", list[api.Device]], None],
        on_stop: Callable[["Endpoint"], None],
    ) -> None:
        try:
            for message in self._stream:
                on_list(self, list(message.devices))
        except grpc.RpcError:
            pass  # how streams end, when the plugin dies or we close them
        finally:
            self.stopped = True
            on_stop(self)


class OtherPlugin:
    """Somebody else's resource: always there, gives whatever ids the kubelet picks."""

    stopped = False
    options = api.DevicePluginOptions()

    def __init__(self, resource: str) -> None:
        self.resource = resource

    def allocate(self, ids: list[str]) -> api.ContainerAllocateResponse:
        return api.ContainerAllocateResponse()

    def prefer(self, available: list[str], must_include: list[str], size: int) -> set[str]:
        raise AssertionError("it has no preferences")

    def pre_start(self, ids: list[str]) -> None:
        raise AssertionError("it has not asked for this")

    def close(self) -> None:
        pass
