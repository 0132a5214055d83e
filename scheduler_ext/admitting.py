"""Plugs the admission webhook into the server, with the GPUs that the cluster has at the moment."""

from scheduler_ext.server import Route
from scheduler_ext.settings import Settings
from scheduler_ext.state import ClusterState
from scheduler_ext.webhook import (
    GpuCatalog,
    GpuKind,
    InitContainerRule,
    Webhook,
    WebhookSettings,
    routes,
)

__all__ = ["webhook_routes"]


def webhook_routes(settings: Settings, state: ClusterState) -> list[Route]:
    webhook = Webhook(
        WebhookSettings(
            unit_mib=settings.unit_mib,
            default_compute_percent=settings.default_compute_percent,
            scheduler_name=settings.scheduler_name,
            runtime_class=settings.runtime_class,
            init_containers=InitContainerRule(settings.init_containers),
            shim_off_namespaces=frozenset(settings.shim_off_namespaces),
            plan_writers=frozenset({settings.extender_account}),
            actual_writers=frozenset({settings.agent_account}),
        ),
        _Catalog(state).read,
    )
    return routes.webhook_routes(webhook)


class _Catalog:
    """Made anew only when nodes have changed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._version = -1
        self._made = GpuCatalog()

    def read(self) -> GpuCatalog:
        with self._state.lock:
            cluster = self._state.cluster
            if self._version != cluster.shape_version:
                by_uuid = {
                    gpu.uuid: GpuKind(gpu.model, gpu.memory_units)
                    for node in cluster.row_of
                    for gpu in self._state.gpus_of(node)
                }
                self._made = GpuCatalog(frozenset(by_uuid.values()), by_uuid)
                self._version = cluster.shape_version
            return self._made
