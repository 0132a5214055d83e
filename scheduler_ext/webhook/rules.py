"""The rules a pod must keep to be admitted, each with a text that says how to do it right."""

from aliquot.protocol import names
from aliquot.protocol.request import ContainerRequest, PodRequest, Role
from scheduler_ext.webhook.catalog import GpuCatalog
from scheduler_ext.webhook.findings import Findings, memory_text
from scheduler_ext.webhook.mounts import covered_path
from scheduler_ext.webhook.pod import Json, amounts, annotations_of, asks, containers
from scheduler_ext.webhook.settings import InitContainerRule, WebhookSettings

__all__ = ["check_authority", "check_containers", "check_ephemeral", "check_outlook"]

_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = ("", "none", "void")


def check_containers(pod: Json, settings: WebhookSettings, findings: Findings) -> None:
    """What stands in the spec of a new pod."""
    for container, role in containers(pod):
        sharing = asks(container)
        _check_environment(container, sharing, findings)
        if sharing:
            _check_mounts(container, findings)
            _check_other_gpus(container, findings)
            if role is Role.INIT:
                _check_init(container, settings.init_containers, findings)


def check_ephemeral(old: Json, new: Json, findings: Findings) -> None:
    """Debug containers have no resources, but could reach for the GPUs of others."""
    known = {each["name"] for each in old["spec"].get("ephemeralContainers") or ()}
    for container in new["spec"].get("ephemeralContainers") or ():
        if container["name"] not in known:
            _check_environment(container, False, findings)


def check_authority(
    old: Json | None,
    new: Json,
    namespace: str,
    user: str,
    settings: WebhookSettings,
    findings: Findings,
) -> None:
    """Annotations that not everybody may write."""
    before, after = (annotations_of(old) if old else {}), annotations_of(new)
    writers = ((names.PLAN, settings.plan_writers), (names.ACTUAL, settings.actual_writers))
    for name, allowed in writers:
        if before.get(name) != after.get(name) and user not in allowed:
            findings.forbid(
                f"{name} is Aliquot's own record and cannot be written by {user}; remove it from "
                f"the manifest"
            )
    switched_off = after.get(names.SHIM) == "off" and before.get(names.SHIM) != "off"
    if switched_off and namespace not in settings.shim_off_namespaces:
        findings.forbid(
            f"{names.SHIM}: off lifts the caps of a container and is not allowed in namespace "
            f"{namespace}; remove it, or let an administrator allow the namespace"
        )


def check_outlook(
    pod: Json,
    request: PodRequest,
    settings: WebhookSettings,
    catalog: GpuCatalog,
    findings: Findings,
) -> None:
    """Warnings only: a larger GPU may be on its way."""
    if not request.containers:
        if any(name.startswith(f"{names.DOMAIN}/") for name in annotations_of(pod)):
            findings.warn(
                f"the pod has annotations of {names.DOMAIN} but asks for no share; add "
                f"{names.MEMORY_RESOURCE} to the limits of a container"
            )
        return
    if request.policy == "fixed" and names.WEIGHT in annotations_of(pod):
        findings.warn(
            f"{names.WEIGHT} has no effect with {names.POLICY}: fixed, which never borrows"
        )
    kinds = catalog.eligible(request)
    if not catalog.kinds:
        findings.warn("the cluster has no GPUs now; the pod waits until a node agent reports some")
        return
    if not kinds:
        known = ", ".join(catalog.models)
        findings.warn(f"no GPU fits {names.GPU_MODEL} and {names.GPU_UUID} now; there are: {known}")
        return
    most = max(kind.memory_units for kind in kinds)
    for container in request.containers:
        _warn_of_size(container, request.gpus_of(container), most, settings.unit_mib, findings)


def _warn_of_size(
    container: ContainerRequest, gpus: int, most: int, unit_mib: int, findings: Findings
) -> None:
    each = container.memory_units // gpus
    if each > most:
        findings.warn(
            f"container {container.name} asks for {memory_text(each, unit_mib)} of one GPU, the "
            f"largest it may use has {memory_text(most, unit_mib)}; it waits for a larger one "
            f"(plain numbers count units of {unit_mib} MiB)"
        )


def _check_environment(container: Json, sharing: bool, findings: Findings) -> None:
    for variable in container.get("env") or ():
        if variable.get("name") != _VISIBLE_DEVICES:
            continue
        # A container beside ours may say that it wants no GPU at all.
        if not sharing and "valueFrom" not in variable and variable.get("value", "") in _NO_DEVICES:
            continue
        findings.refuse(
            f"container {container['name']} sets {_VISIBLE_DEVICES}, which would reach round the "
            f"GPUs it was given; remove it, and choose GPUs with {names.GPU_MODEL} or "
            f"{names.GPU_UUID}"
        )


def _check_mounts(container: Json, findings: Findings) -> None:
    places = [mount.get("mountPath", "") for mount in container.get("volumeMounts") or ()]
    places += [device.get("devicePath", "") for device in container.get("volumeDevices") or ()]
    for place in places:
        ours = covered_path(place)
        if ours is not None:
            findings.refuse(
                f"container {container['name']} mounts a volume at {place}, which covers {ours}, "
                f"where its limits are; mount single files or folders beside it"
            )


def _check_other_gpus(container: Json, findings: Findings) -> None:
    for resource in amounts(container, "limits"):
        if resource == "nvidia.com/gpu" or resource.startswith("nvidia.com/mig-"):
            findings.refuse(
                f"container {container['name']} asks for {resource} beside {names.DOMAIN}, and "
                f"would not see that GPU; keep one of the two ({names.COMPUTE_RESOURCE}: 100 is a "
                f"whole GPU)"
            )


def _check_init(container: Json, rule: InitContainerRule, findings: Findings) -> None:
    if rule is InitContainerRule.ALLOW:
        return
    text = (
        f"init container {container['name']} asks for a share, which the kubelet hands on to the "
        f"app containers as it likes; use a sidecar (restartPolicy: Always) or an app container"
    )
    (findings.warn if rule is InitContainerRule.WARN else findings.refuse)(text)
