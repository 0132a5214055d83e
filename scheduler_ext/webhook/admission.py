"""Admission of a pod as one pure decision: what becomes of it, why not, and what to tell."""

import copy
from dataclasses import dataclass

from aliquot.protocol import names
from aliquot.protocol.request import PodRequest, RequestError
from scheduler_ext.webhook.amounts import settle_amounts
from scheduler_ext.webhook.catalog import GpuCatalog
from scheduler_ext.webhook.defaults import add_defaults
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.pod import Json, annotations_of, containers, request_of
from scheduler_ext.webhook.rules import (
    check_authority,
    check_containers,
    check_ephemeral,
    check_outlook,
)
from scheduler_ext.webhook.settings import WebhookSettings
from scheduler_ext.webhook.spelling import check_annotation_names, check_resource_names
from scheduler_ext.webhook.stored import keep_stored

__all__ = ["Arrival", "admit", "confirm"]

_RECORDS = (names.PLAN, names.ACTUAL, names.RESIZE)
_READ_AT_PLACEMENT = (
    *(names.GPUS, names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.GROUP),
    *(names.GROUP_SIZE, names.SHIM),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod on its way into the API server; `old` is what is stored, when it is an update."""

    pod: Json
    old: Json | None
    namespace: str
    user: str


def admit(
    arrival: Arrival, settings: WebhookSettings, catalog: GpuCatalog
) -> tuple[Json, Findings]:
    """The pod as it should be stored; the one that came is left as it is."""
    pod, findings = copy.deepcopy(arrival.pod), Findings()
    if arrival.old is None:
        _admit_new(pod, settings, catalog, findings)
    else:
        keep_stored(arrival.old, pod, settings.unit_mib, findings)
        check_ephemeral(arrival.old, pod, findings)
        _check_changed_annotations(arrival.old, pod, findings)
    check_authority(arrival.old, pod, arrival.namespace, arrival.user, settings, findings)
    return pod, findings


def confirm(arrival: Arrival, settings: WebhookSettings, catalog: GpuCatalog) -> Findings:
    """The last look, when every other webhook had its turn: only refusals."""
    pod, findings = admit(arrival, settings, catalog)
    findings.warnings.clear()
    if not findings.refusals and pod["spec"] != arrival.pod["spec"]:
        findings.refuse(
            f"another admission webhook changed {names.DOMAIN} resources after Aliquot's had "
            f"converted them; give that webhook reinvocationPolicy: IfNeeded or let it run earlier"
        )
    return findings


def _admit_new(
    pod: Json, settings: WebhookSettings, catalog: GpuCatalog, findings: Findings
) -> None:
    check_containers(pod, settings, findings)
    check_annotation_names(annotations_of(pod), findings)
    check_resource_names(pod, findings)
    for container, _ in containers(pod):
        settle_amounts(container, settings.unit_mib, findings)
    request = _read(pod, findings)
    if request is None:
        return
    add_defaults(pod, request, settings, catalog, findings)
    settled = _read(pod, findings)
    if settled is not None:
        check_outlook(pod, settled, settings, catalog, findings)


def _read(pod: Json, findings: Findings) -> PodRequest | None:
    if findings.refusals:
        # Amounts that could not be read would be complained about a second time.
        return None
    try:
        return request_of(pod)
    except RequestError as error:
        findings.refuse(str(error))
        return None


def _check_changed_annotations(old: Json, new: Json, findings: Findings) -> None:
    before, after = annotations_of(old), annotations_of(new)
    changed = {
        name
        for name in before.keys() | after.keys()
        if name.startswith(f"{names.DOMAIN}/") and before.get(name) != after.get(name)
    }
    if not changed.difference(_RECORDS):
        return
    check_annotation_names(changed & after.keys(), findings)
    wrong = _fault(new)
    # A pod that came round the webhook may be wrong already; that is no reason to freeze it.
    if wrong and wrong != _fault(old):
        findings.refuse(wrong)
    if old["spec"].get("nodeName"):
        for name in sorted(changed.intersection(_READ_AT_PLACEMENT)):
            findings.warn(f"{name} is read when a pod is placed; this one is, so nothing changes")


def _fault(pod: Json) -> str:
    try:
        request_of(pod)
    except RequestError as error:
        return str(error)
    return ""
