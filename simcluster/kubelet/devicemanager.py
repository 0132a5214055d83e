"""How the kubelet hands out ids: who is asked what, in which order, and what is kept when."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from simcluster.kubelet import checkpoint
from simcluster.kubelet.checkpoint import Entry
from simcluster.kubelet.endpoint import CallError, Endpoint, OtherPlugin
from simcluster.kubelet.pods import Container, Pod, Role

__all__ = ["AllocationError", "DeviceManager"]

HEALTHY = "Healthy"
MANY = 1000
"""More ids than this are not mixed any further; it would take longer than all the rest."""


class AllocationError(Exception):
    """Why a container got no ids; the pod is rejected for good with this text."""


class DeviceManager:
    """State of one kubelet process; a restarted one begins with what the checkpoint has."""

    def __init__(
        self, file: Path, active_pods: Callable[[], list[Pod]], chance: random.Random
    ) -> None:
        self._file = file
        self._active_pods = active_pods
        self._chance = chance
        self.mutex = threading.RLock()
        self.changed = threading.Condition(self.mutex)
        self.endpoints: dict[str, Endpoint | OtherPlugin | None] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.allocated: dict[str, set[str]] = {}
        self.entries: dict[tuple[str, str, str], Entry] = {}
        """By pod uid, container and resource."""
        self._reusable: dict[str, dict[str, set[str]]] = {}
        self._pending: Pod | None = None
        self.resource_order: Callable[[list[str]], list[str]] = self._shuffled
        self.in_flight: Callable[[str, set[str]], None] | None = None
        """Called with ids that are chosen and not yet given, just before Allocate."""
        if file.exists():
            self._remember()

    # Plugins.

    def connect(self, endpoint: Endpoint) -> None:
        with self.mutex:
            self.endpoints[endpoint.resource] = endpoint

    def add_other(self, resource: str, ids: set[str]) -> None:
        """A resource of another plugin."""
        with self.mutex:
            self.endpoints[resource] = OtherPlugin(resource)
            self.healthy[resource] = set(ids)

    def take_list(self, endpoint: Endpoint, devices: list[api.Device]) -> None:
        with self.mutex:
            if self.endpoints.get(endpoint.resource) is not endpoint:
                return
            healthy = {device.ID for device in devices if device.health == HEALTHY}
            self.healthy[endpoint.resource] = healthy
            self.unhealthy[endpoint.resource] = {device.ID for device in devices} - healthy
            self._write()
            self.changed.notify_all()

    def plugin_stopped(self, endpoint: Endpoint) -> None:
        """All of its ids are unhealthy at once."""
        with self.mutex:
            if self.endpoints.get(endpoint.resource) is endpoint:
                healthy = self.healthy.get(endpoint.resource, set())
                self.unhealthy.setdefault(endpoint.resource, set()).update(healthy)
                self.healthy[endpoint.resource] = set()
                self.changed.notify_all()

    # Pods.

    def allocate(self, pod: Pod, container: Container) -> None:
        """At admission, for each container in turn."""
        self._pending = pod
        for uid in [uid for uid in self._reusable if uid != pod.uid]:
            del self._reusable[uid]
        reusable = self._reusable.setdefault(pod.uid, {})
        self._allocate_resources(pod, container, reusable)
        for resource in container.limits:
            entry = self.entries.get((pod.uid, container.name, resource))
            if entry is None:
                continue
            # A finished init container's ids serve the containers after it.
            if container.role is Role.INIT:
                reusable.setdefault(resource, set()).update(entry.ids)
            else:
                reusable.get(resource, set()).difference_update(entry.ids)

    def update_allocated(self) -> None:
        """Forgets the ids of pods that are gone; also done for every list of pod resources.

        Ids that are in flight at this moment are forgotten, too: the real one's flaw.
        """
        with self.mutex:
            living = {pod.uid for pod in self._active_pods()}
            if self._pending is not None:
                living.add(self._pending.uid)
            gone = [key for key in self.entries if key[0] not in living]
            if gone:
                for key in gone:
                    del self.entries[key]
                self._recount()

    def ids_of(self, pod: Pod, container: str) -> dict[str, set[str]]:
        with self.mutex:
            return {
                resource: set(entry.ids)
                for (uid, name, resource), entry in self.entries.items()
                if (uid, name) == (pod.uid, container)
            }

    def ids_by_container(self) -> dict[tuple[str, str], dict[str, frozenset[str]]]:
        """By pod uid and container, then by resource."""
        found: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
        with self.mutex:
            for (uid, name, resource), entry in self.entries.items():
                found.setdefault((uid, name), {})[resource] = entry.ids
        return found

    def _allocate_resources(
        self, pod: Pod, container: Container, reusable: dict[str, set[str]]
    ) -> None:
        was_updated = wrote = False
        for resource in self.resource_order(list(container.limits)):
            if resource not in self.endpoints:
                raise AllocationError(f"cannot allocate unregistered device {resource}")
            if not was_updated:
                self.update_allocated()
                was_updated = True
            count = container.limits[resource]
            ids = self._choose(pod, container, resource, count, reusable.get(resource, set()))
            if not ids:
                continue
            wrote = True
            self._give(pod, container, resource, ids)
        if wrote:
            # Only now, not after each resource: a crash in between leaves no trace of the first.
            with self.mutex:
                self._write()

    def _give(self, pod: Pod, container: Container, resource: str, ids: set[str]) -> None:
        if self.in_flight is not None:
            self.in_flight(resource, ids)
        endpoint = self.endpoints[resource]
        try:
            if endpoint is None or endpoint.stopped:
                raise AllocationError(f"endpoint of {resource} has been stopped")
            response = endpoint.allocate(self._shuffled(list(ids)))
        except (CallError, AllocationError) as error:
            with self.mutex:
                self._recount()
            raise AllocationError(str(error)) from None
        with self.mutex:
            self.entries[pod.uid, container.name, resource] = Entry(
                pod.uid, container.name, resource, frozenset(ids), response
            )

    def _choose(
        self, pod: Pod, container: Container, resource: str, needed: int, reusable: set[str]
    ) -> set[str]:
        with self.mutex:
            entry = self.entries.get((pod.uid, container.name, resource))
            has = set(entry.ids) if entry else set()
            needed -= len(has)
            if has and needed:
                raise AllocationError(f"pod {pod.name} changed its request for {resource}")
            healthy = self.healthy.get(resource, set())
            if not healthy:
                raise AllocationError(
                    f"no healthy devices present; cannot allocate unhealthy devices {resource}"
                )
            if not has <= healthy:
                raise AllocationError(
                    "previously allocated devices are no longer healthy; "
                    f"cannot allocate unhealthy devices {resource}"
                )
            if needed <= 0:
                return set()
            chosen = set(self._shuffled(list(reusable))[:needed])
            self.allocated.setdefault(resource, set()).update(chosen)
            if len(chosen) == needed:
                return chosen
            available = healthy - self.allocated[resource]
            if len(available) < needed - len(chosen):
                raise AllocationError(
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {needed - len(chosen)}, Available: {len(available)}"
                )
        preferred = self._ask_preference(resource, available | chosen, chosen, needed)
        with self.mutex:
            ranked = [
                *self._shuffled(list(preferred & available)),
                *self._shuffled(list(available)),
            ]
            for each in ranked:
                if len(chosen) < needed:
                    chosen.add(each)
            self.allocated.setdefault(resource, set()).update(chosen)
            return chosen

    def _ask_preference(
        self, resource: str, available: set[str], must_include: set[str], size: int
    ) -> set[str]:
        """Without the mutex: the plugin may ask for the list of pods meanwhile."""
        endpoint = self.endpoints[resource]
        if endpoint is None or endpoint.stopped:
            raise AllocationError(f"endpoint of {resource} has been stopped")
        if not endpoint.options.get_preferred_allocation_available:
            return set()
        try:
            return endpoint.prefer(
                self._shuffled(list(available)), self._shuffled(list(must_include)), size
            )
        except CallError as error:
            raise AllocationError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from None

    # The checkpoint.

    def _write(self) -> None:
        registered = {
            resource: self.healthy.get(resource, set()) for resource in sorted(self.endpoints)
        }
        checkpoint.write(self._file, self.entries.values(), registered)

    def _remember(self) -> None:
        entries, resources = checkpoint.read(self._file)
        self.entries = {(each.pod_uid, each.container, each.resource): each for each in entries}
        for resource in resources:
            # Known, but without ids until the plugin registers again.
            self.endpoints[resource] = None
            self.healthy[resource] = set()
        self._recount()

    def _recount(self) -> None:
        self.allocated = {}
        for entry in self.entries.values():
            self.allocated.setdefault(entry.resource, set()).update(entry.ids)

    def _shuffled(self, items: list[str]) -> list[str]:
        if len(items) > MANY:
            return items  # out of a set, so in no order anyway
        mixed = sorted(items)
        self._chance.shuffle(mixed)
        return mixed
