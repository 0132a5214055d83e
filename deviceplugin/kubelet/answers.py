"""What the kubelet is answered for one resource: the allocator, given what it has to ask others."""

from collections.abc import Callable, Sequence
from sys import intern

from deviceplugin.booking.allocator import Allocator, Listing, PodSource
from deviceplugin.booking.errors import Conflict, Refusal
from deviceplugin.booking.sources import Holder
from deviceplugin.container.grant import Grant
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from deviceplugin.telemetry.counts import Counts

__all__ = ["Answers"]


class Answers:
    def __init__(
        self,
        resource: str,
        allocator: Allocator,
        pods: PodSource,
        list_now: Listing,
        list_when_quiet: Listing,
        read_checkpoint: Callable[[str], list[Holder] | None],
        counts: Counts,
        on_start: Callable[[str], None],
    ) -> None:
        """`read_checkpoint` takes an id and tells of the containers that hold it; `on_start` is
        called when a container may start, with its pod's uid or nothing."""
        self._resource = resource
        self._allocator = allocator
        self._pods = pods
        self._list_now = list_now
        self._list_when_quiet = list_when_quiet
        self._read_checkpoint = read_checkpoint
        self._counts = counts
        self._on_start = on_start

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        return self._allocator.preferred(
            self._resource, available, must_include, size, self._list_now, self._pods
        )

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        result = "failed"
        try:
            grant = self._allocator.allocate(self._resource, [intern(each) for each in ids])
            result = "granted"
        except Refusal as refusal:
            result = "refused"
            if isinstance(refusal, Conflict):
                self._counts.conflict()
            raise
        finally:
            self._counts.allocation(self._resource, result)
        return _response(grant)

    def pre_start(self, ids: Sequence[str]) -> None:
        # Other containers' Allocate may be open at this moment, so the list has to wait for them.
        recorded = self._read_checkpoint(ids[0] if ids else "")
        owner = self._allocator.prestart(
            self._resource, ids, recorded, self._list_when_quiet, self._pods
        )
        self._on_start(owner.uid if owner is not None else "")


def _response(grant: Grant) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=grant.env,
        mounts=[
            api.Mount(
                container_path=str(mount.container),
                host_path=str(mount.host),
                read_only=mount.read_only,
            )
            for mount in grant.mounts
        ],
        devices=[
            api.DeviceSpec(
                container_path=str(node.container),
                host_path=str(node.host),
                permissions=node.permissions,
            )
            for node in grant.devices
        ],
        cdi_devices=[api.CDIDevice(name=name) for name in grant.cdi],
    )
