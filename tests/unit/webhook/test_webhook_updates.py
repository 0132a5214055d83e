"""A pod that is stored stays as it is: the same manifest, applied again, is not forbidden."""

import copy

import pytest

from aliquot.protocol import names
from scheduler_ext.webhook import GpuCatalog, WebhookSettings
from tests.unit.webhook.admission_cases import TWO_KINDS, container, pod, review

MEMORY, COMPUTE = names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE


def created(manifest, **how):
    answer = review(manifest, **how)
    assert answer.allowed
    return answer.pod


@pytest.mark.parametrize("kinds", [("limits",), ("limits", "requests")])
def test_applying_the_same_manifest_again_changes_nothing(kinds):
    manifest = pod(container(memory="4Gi", compute="30"))
    stored = created(manifest)
    # kubectl patches what differs between the manifest and the stored pod.
    applied = copy.deepcopy(stored)
    for kind in kinds:
        applied["spec"]["containers"][0]["resources"][kind][MEMORY] = "4Gi"
    answer = review(applied, stored)
    assert answer.allowed
    assert answer.pod == stored
    assert review(answer.pod, stored, route="validate").allowed


def test_replacing_a_pod_by_its_manifest_keeps_what_was_added():
    manifest = pod(container(memory="4Gi"))
    stored = created(manifest, settings=WebhookSettings(runtime_class="nvidia"))
    assert stored["spec"]["runtimeClassName"] == "nvidia"
    stored["metadata"]["annotations"][names.PLAN] = "{}"
    answer = review(manifest, stored)
    assert answer.allowed
    assert answer.limits() == ("16", "10")
    assert answer.pod["spec"] == stored["spec"]
    assert answer.pod["metadata"]["annotations"][names.PLAN] == "{}"
    assert "aliquot.dev/plan was kept" in answer.warnings[0]


def test_defaults_are_those_of_the_day_of_creation():
    manifest = pod(container(memory="4Gi"))
    stored = created(manifest)
    later = WebhookSettings(default_compute_percent=50)
    assert review(manifest, stored, settings=later).limits() == ("16", "10")
    proportional = pod(container(compute="25"))
    stored = created(proportional)
    assert review(proportional, stored, catalog=TWO_KINDS).limits() == ("80", "25")


def test_a_real_change_is_refused_with_the_way_to_do_it():
    stored = created(pod(container(memory="4Gi", compute="30")))
    larger = copy.deepcopy(stored)
    for kind in ("limits", "requests"):
        larger["spec"]["containers"][0]["resources"][kind][MEMORY] = "6Gi"
    answer = review(larger, stored)
    assert not answer.allowed
    assert "is 16 and cannot become 6Gi; use `aliquot resize`" in answer.message


def test_a_pod_that_came_round_the_webhook_can_still_be_changed():
    stored = pod(container(memory="4"))
    stored["spec"]["initContainers"] = [container("prepare", compute="150")]
    stored["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    labelled = copy.deepcopy(stored)
    labelled["metadata"]["labels"] = {"a": "b"}
    labelled["metadata"]["annotations"][names.POLICY] = "fixed"
    answer = review(labelled, stored, catalog=GpuCatalog())
    assert answer.allowed
    assert answer.patch == []
    assert review(labelled, stored, route="validate").allowed


def test_annotations_are_checked_when_they_change():
    stored = created(pod(container(memory="4Gi", compute="30")))
    wrong = copy.deepcopy(stored)
    wrong["metadata"]["annotations"][names.POLICY] = "greedy"
    assert "must be one of fixed" in review(wrong, stored).message
    assert review(wrong, wrong).allowed
    resized = copy.deepcopy(stored)
    resized["metadata"]["annotations"][names.RESIZE] = "whatever the agent understands"
    assert review(resized, stored).allowed
    misspelt = copy.deepcopy(stored)
    misspelt["metadata"]["annotations"]["aliquot.dev/group_size"] = "2"
    assert "did you mean aliquot.dev/group-size?" in review(misspelt, stored).warnings[0]
    assert not review(misspelt, misspelt).warnings


def test_annotations_of_a_placed_pod_come_too_late():
    stored = created(pod(container(memory="4Gi", compute="30"), placement="pack"))
    waiting = copy.deepcopy(stored)
    waiting["metadata"]["annotations"][names.GPU_MODEL] = "L4"
    assert review(waiting, stored).warnings == []
    stored["spec"]["nodeName"] = waiting["spec"]["nodeName"] = "node-1"
    answer = review(waiting, stored)
    assert answer.allowed
    assert "aliquot.dev/gpu-model is read when a pod is placed" in answer.warnings[0]


def test_the_validating_webhook_sees_what_others_changed_after_us():
    settled = created(pod(container(memory="4Gi", compute="30")))
    assert review(settled, route="validate").allowed
    injected = copy.deepcopy(settled)
    injected["spec"]["containers"].append(container("late", memory="1Gi"))
    answer = review(injected, route="validate")
    assert not answer.allowed
    assert "another admission webhook changed aliquot.dev resources" in answer.message
    mounted = copy.deepcopy(settled)
    mounted["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/etc"}]
    assert "which covers /etc/aliquot" in review(mounted, route="validate").message
