"""Quantities become units, and the missing half of a share is added, or asked for."""

import pytest

from aliquot.protocol import names
from scheduler_ext.webhook import GpuCatalog, WebhookSettings
from scheduler_ext.webhook.findings import Findings
from scheduler_ext.webhook.spelling import check_annotation_names
from tests.unit.webhook.admission_cases import A100, ONE_KIND, TWO_KINDS, container, pod, review


@pytest.mark.parametrize(
    ("written", "units", "warned"),
    [
        ("4Gi", "16", ""),
        ("16", "16", ""),
        ("4096Mi", "16", ""),
        ("4294967296", "16", ""),
        ("4G", "15", "4G was rounded up to 15 units (3.75 GiB)"),
        ("1Mi", "1", "1Mi was rounded up to 1 unit (0.25 GiB)"),
        ("300Mi", "2", "300Mi was rounded up to 2 units (0.5 GiB)"),
        ("4294967297", "17", "was rounded up to 17 units"),
    ],
)
def test_bytes_become_units_rounded_up(written, units, warned):
    answer = review(pod(container(memory=written, compute="30")))
    assert answer.allowed
    assert answer.limits() == (units, "30")
    assert [warned in text for text in answer.warnings] == ([True] if warned else [])


def test_numbers_below_one_mebibyte_are_units_however_large():
    answer = review(pod(container(memory="512Ki", compute="30")))
    assert answer.limits() == ("512Ki", "30")
    assert "524288 units" in answer.warnings[0]
    assert "plain numbers count units of 256 MiB" in answer.warnings[0]


def test_the_unit_is_the_administrators():
    settings = WebhookSettings(unit_mib=1024)
    assert review(pod(container(memory="4Gi", compute="30")), settings=settings).limits()[0] == "4"


def test_memory_only_gets_the_default_share():
    settings = WebhookSettings(default_compute_percent=20)
    assert review(pod(container(memory="4Gi")), settings=settings).limits() == ("16", "20")
    both = pod(container(memory="8Gi"), gpus="2")
    assert review(both, settings=settings).limits() == ("32", "40")


def test_best_effort_holds_one_percent_of_each_gpu():
    assert review(pod(container(memory="4Gi"), compute_policy="best-effort")).limits()[1] == "1"
    spread = pod(container(memory="4Gi"), compute_policy="best-effort", gpus="2")
    assert review(spread).limits()[1] == "2"


def test_compute_only_gets_as_much_of_the_memory_when_all_gpus_are_alike():
    assert review(pod(container(compute="25"))).limits() == ("80", "25")
    # Thirty percent of 320 units on each of two GPUs.
    assert review(pod(container(compute="60"), gpus="2")).limits() == ("192", "60")
    # The annotation leaves one kind over.
    chosen = pod(container(compute="25"), gpu_model="L4")
    assert review(chosen, catalog=TWO_KINDS).limits() == ("24", "25")
    named = pod(container(compute="25"), gpu_uuid="GPU-a")
    assert review(named, catalog=TWO_KINDS).limits() == ("80", "25")


def test_compute_only_is_refused_when_memory_cannot_be_derived():
    answer = review(pod(container(compute="25")), catalog=TWO_KINDS)
    assert not answer.allowed
    assert answer.code == 422
    assert "differ in memory (24, 80 GiB)" in answer.message
    assert "name the memory, such as aliquot.dev/gpu-memory: 4Gi" in answer.message
    nothing = review(pod(container(compute="25")), catalog=GpuCatalog())
    assert "no GPU that the pod may use is known now" in nothing.message


@pytest.mark.parametrize(("compute", "gpus"), [("100", "1"), ("300", "1"), ("200", "2")])
def test_hundreds_without_memory_are_whole_gpus(compute, gpus):
    answer = review(pod(container(compute=compute), gpus=gpus), catalog=TWO_KINDS)
    assert answer.allowed
    assert answer.limits() == (None, compute)


def test_a_zero_is_as_good_as_nothing():
    assert review(pod(container(memory="0", compute="25"))).limits() == ("80", "25")
    untouched = review(pod(container(memory="0", compute="0"), placement="pack"))
    assert untouched.allowed
    assert untouched.patch == []


@pytest.mark.parametrize("given", ["limits", "requests"])
def test_limits_and_requests_become_equal(given):
    one = container(memory="4Gi", compute="30")
    one["resources"] = {given: one["resources"][given]}
    assert review(pod(one)).limits() == ("16", "30")


def test_different_limits_and_requests_are_refused():
    one = container(memory="4Gi", compute="30")
    one["resources"]["requests"][names.MEMORY_RESOURCE] = "8"
    answer = review(pod(one))
    assert "has the limit 16 and the request 8" in answer.message
    assert "leave the request out" in answer.message


def test_every_container_is_settled_by_itself():
    both = pod(container("a", memory="4Gi"), container("b", memory="1Gi", compute="5"))
    both["spec"]["initContainers"] = [
        {**container("proxy", memory="2Gi"), "restartPolicy": "Always"}
    ]
    answer = review(both)
    assert (answer.limits("a"), answer.limits("b")) == (("16", "10"), ("4", "5"))
    assert answer.limits("proxy") == ("8", "10")


def test_our_scheduler_places_our_pods_unless_they_chose_or_need_none():
    asking = container(memory="4Gi", compute="30")
    assert review(pod(asking)).pod["spec"]["schedulerName"] == "aliquot-scheduler"
    unset = pod(asking)
    del unset["spec"]["schedulerName"]
    assert review(unset).pod["spec"]["schedulerName"] == "aliquot-scheduler"
    chosen = pod(asking)
    chosen["spec"]["schedulerName"] = "volcano"
    answer = review(chosen)
    assert answer.pod["spec"]["schedulerName"] == "volcano"
    assert "schedulerName volcano knows only sums per node" in answer.warnings[0]
    left_alone = review(pod(asking), settings=WebhookSettings(scheduler_name=""))
    assert left_alone.pod["spec"]["schedulerName"] == "default-scheduler"
    bound = pod(asking)
    bound["spec"]["nodeName"] = "node-1"
    assert review(bound).pod["spec"]["schedulerName"] == "default-scheduler"


def test_pods_get_the_runtime_that_brings_gpus_in_unless_they_chose_or_need_none():
    nvidia = WebhookSettings(runtime_class="nvidia")
    asking = pod(container(memory="4Gi", compute="30"))
    assert review(asking, settings=nvidia).pod["spec"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in review(asking).pod["spec"]
    chosen = pod(container(memory="4Gi", compute="30"))
    chosen["spec"]["runtimeClassName"] = "nvidia-legacy"
    answer = review(chosen, settings=nvidia)
    assert answer.pod["spec"]["runtimeClassName"] == "nvidia-legacy"
    no_share = review(pod(container(), placement="pack"), settings=nvidia)
    assert "runtimeClassName" not in no_share.pod["spec"]


def test_what_may_come_later_is_a_warning():
    answer = review(pod(container(memory="100Gi", compute="30")), catalog=TWO_KINDS)
    assert answer.allowed
    assert "asks for 400 units (100 GiB) of one GPU" in answer.warnings[0]
    assert "the largest it may use has 320 units (80 GiB)" in answer.warnings[0]
    split = review(pod(container(memory="100Gi", compute="30"), gpus="2"))
    assert split.warnings == []
    unknown = review(pod(container(memory="4Gi", compute="30"), gpu_model="H100"))
    assert unknown.allowed
    assert f"there are: {A100.model}" in unknown.warnings[0]
    empty = review(pod(container(memory="4Gi", compute="30")), catalog=GpuCatalog())
    assert empty.allowed
    assert "the cluster has no GPUs now" in empty.warnings[0]


def test_annotations_without_a_share_are_a_warning():
    answer = review(pod(container(), placement="pack"), catalog=ONE_KIND)
    assert answer.allowed
    assert "asks for no share" in answer.warnings[0]


def test_names_that_nobody_reads_are_a_warning_with_the_right_name():
    answer = review(pod(container(memory="4Gi"), gpu_modell="A100"), catalog=ONE_KIND)
    assert answer.allowed
    assert answer.warnings == [
        "nobody reads the annotation aliquot.dev/gpu-modell; did you mean aliquot.dev/gpu-model?"
    ]
    asked = container()
    asked["resources"] = {"limits": {"aliquot.dev/vram": "4Gi"}}
    answer = review(pod(asked), catalog=ONE_KIND)
    assert answer.allowed
    [warning] = answer.warnings
    assert warning == (
        "container main waits for aliquot.dev/vram, which no node offers; there are "
        "aliquot.dev/gpu-memory, aliquot.dev/gpu-compute"
    )


def test_every_name_that_somebody_reads_passes_without_a_warning():
    ours = {
        name
        for key, name in vars(names).items()
        if key.isupper() and str(name).startswith("aliquot.dev/")
    }
    findings = Findings()
    on_pods = ours - {names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE, names.INVENTORY}
    check_annotation_names(on_pods, findings)
    assert not findings.warnings


def test_a_share_in_words_is_refused_with_the_way_to_write_it():
    answer = review(pod(container(compute="30%")), catalog=ONE_KIND)
    assert not answer.allowed
    assert "'30%' is not a number; write it like 30 for 30 percent of one GPU" in answer.message


def test_the_reserve_settings_are_checked():
    with pytest.raises(ValueError, match="1 to 100 percent, not 0"):
        WebhookSettings(default_compute_percent=0)
    with pytest.raises(ValueError, match="cannot have 0 MiB"):
        WebhookSettings(unit_mib=0)
