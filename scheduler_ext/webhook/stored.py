"""An update brings back what the stored pod already has: what we converted or added stays so."""

from collections.abc import Mapping
from decimal import Decimal

from aliquot.protocol import names
from aliquot.protocol.quantity import QuantityError
from scheduler_ext.webhook.amounts import units_of
from scheduler_ext.webhook.defaults import UNCHOSEN_SCHEDULERS
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.pod import OURS, Json, amounts, annotations_of, containers

__all__ = ["keep_stored"]

_KINDS = ("limits", "requests")


def keep_stored(old: Json, new: Json, unit_mib: int, findings: Findings) -> None:
    """The same manifest, applied again, shall change nothing: a pod's resources are immutable."""
    before = {container["name"]: container for container, _ in containers(old)}
    for container, _ in containers(new):
        if container["name"] in before:
            _keep_amounts(before[container["name"]], container, unit_mib, findings)
    had, has = old["spec"].get("schedulerName"), new["spec"].get("schedulerName")
    if has in UNCHOSEN_SCHEDULERS and had not in UNCHOSEN_SCHEDULERS:
        new["spec"]["schedulerName"] = had
    if (runtime := old["spec"].get("runtimeClassName")) and not new["spec"].get("runtimeClassName"):
        new["spec"]["runtimeClassName"] = runtime
    _keep_records(old, new, findings)


def _keep_amounts(old: Json, new: Json, unit_mib: int, findings: Findings) -> None:
    for kind in _KINDS:
        for resource in OURS:
            had, has = amounts(old, kind).get(resource), amounts(new, kind).get(resource)
            if had == has:
                continue
            if had is not None and (has is None or _same(resource, had, has, unit_mib)):
                # Nothing in a manifest means that the default was taken, as when it was created.
                _write(new, kind, resource, had)
                continue
            findings.refuse(
                f"container {new['name']}: {resource} of an existing pod is {had or 'not there'} "
                f"and cannot become {has}; use `aliquot resize`, or create the pod anew"
            )


def _same(resource: str, had: str, has: str, unit_mib: int) -> bool:
    asked = _units(resource, has, unit_mib)
    return asked is not None and asked in (0, _units(resource, had, unit_mib))


def _units(resource: str, text: str, unit_mib: int) -> Decimal | None:
    try:
        return units_of(resource, text, unit_mib)
    except QuantityError:
        return None


def _write(container: Json, kind: str, resource: str, text: str) -> None:
    if container.get("resources") is None:
        container["resources"] = {}
    if container["resources"].get(kind) is None:
        container["resources"][kind] = {}
    container["resources"][kind][resource] = text


def _keep_records(old: Json, new: Json, findings: Findings) -> None:
    """A manifest that replaces the pod does not know our records, and shall not drop them."""
    stored: Mapping[str, str] = annotations_of(old)
    for name in (names.PLAN, names.ACTUAL):
        if name in stored and name not in annotations_of(new):
            if new["metadata"].get("annotations") is None:
                new["metadata"]["annotations"] = {}
            new["metadata"]["annotations"][name] = stored[name]
            findings.warn(f"{name} was kept: it records which GPUs the pod has")
