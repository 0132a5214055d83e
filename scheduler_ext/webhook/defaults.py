"""What the webhook adds to a new pod: the other half of a share, and who shall place and run it."""

from aliquot.protocol import names
from aliquot.protocol.request import WHOLE_PERCENT, ContainerRequest, PodRequest
from scheduler_ext.webhook.amounts import write_amount
from scheduler_ext.webhook.catalog import GpuCatalog
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.pod import Json, containers
from scheduler_ext.webhook.settings import WebhookSettings

__all__ = ["UNCHOSEN_SCHEDULERS", "add_defaults"]

UNCHOSEN_SCHEDULERS = (None, "", "default-scheduler")
"""The API server writes the last one when a manifest names none."""
_BEST_EFFORT_PERCENT = 1


def add_defaults(
    pod: Json,
    request: PodRequest,
    settings: WebhookSettings,
    catalog: GpuCatalog,
    findings: Findings,
) -> None:
    by_name = {container["name"]: container for container, _ in containers(pod)}
    for asked in request.containers:
        container, gpus = by_name[asked.name], request.gpus_of(asked)
        if not asked.compute_percent:
            percent = settings.default_compute_percent
            if request.policy == "best-effort":
                percent = _BEST_EFFORT_PERCENT
            write_amount(container, names.COMPUTE_RESOURCE, str(percent * gpus))
        elif not asked.memory_units and not request.is_whole(asked):
            units = _proportional_units(asked, request, settings, catalog, findings)
            if units:
                write_amount(container, names.MEMORY_RESOURCE, str(units))
    if request.containers:
        _choose_scheduler(pod, settings, findings)
        if settings.runtime_class and not pod["spec"].get("runtimeClassName"):
            pod["spec"]["runtimeClassName"] = settings.runtime_class


def _proportional_units(
    asked: ContainerRequest,
    request: PodRequest,
    settings: WebhookSettings,
    catalog: GpuCatalog,
    findings: Findings,
) -> int:
    """As much of each GPU's memory as of its compute; 0 when nobody can say how much that is."""
    sizes = sorted({kind.memory_units for kind in catalog.eligible(request)})
    if len(sizes) == 1:
        gpus = request.gpus_of(asked)
        percent_each = asked.compute_percent // gpus
        # Rounded down: ten pods of ten percent shall share one GPU.
        return gpus * max(1, sizes[0] * percent_each // WHOLE_PERCENT)
    why = "no GPU that the pod may use is known now"
    if sizes:
        in_gib = ", ".join(f"{size * settings.unit_mib / 1024:.6g}" for size in sizes)
        why = f"the GPUs that the pod may use differ in memory ({in_gib} GiB)"
    findings.refuse(
        f"container {asked.name} asks for {asked.compute_percent} percent without memory, and "
        f"{why}; name the memory, such as {names.MEMORY_RESOURCE}: 4Gi"
    )
    return 0


def _choose_scheduler(pod: Json, settings: WebhookSettings, findings: Findings) -> None:
    spec, ours = pod["spec"], settings.scheduler_name
    if not ours or spec.get("nodeName"):
        return
    chosen = spec.get("schedulerName")
    if chosen in UNCHOSEN_SCHEDULERS:
        spec["schedulerName"] = ours
    elif chosen != ours:
        findings.warn(
            f"schedulerName {chosen} knows only sums per node, not single GPUs: the pod may be "
            f"rejected by its node; leave schedulerName out to use {ours}"
        )
