"""What a pod may not do, with a text that says how to do it right."""

import pytest

from aliquot.protocol import names
from scheduler_ext.webhook import InitContainerRule, WebhookSettings
from scheduler_ext.webhook.mounts import covered_path
from tests.unit.webhook.admission_cases import AGENT, EXTENDER, ONE_KIND, container, pod, review


def sharing(**more):
    return {**container(memory="4Gi", compute="30"), **more}


@pytest.mark.parametrize(
    ("asked", "annotations", "text"),
    [
        ({"compute": "150"}, {}, "no multiple of 100; ask for whole GPUs (100, 200, ...)"),
        ({"memory": "4Gi", "compute": "0.5"}, {}, "write it like 30 for 30 percent"),
        ({"memory": "500m"}, {}, "write it like 4Gi or 16"),
        ({"memory": "lots"}, {}, "is not a quantity"),
        ({"memory": "4Gi"}, {"compute_policy": "greedy"}, "must be one of fixed, burst"),
        ({"memory": "4Gi"}, {"gpu_model": "L4,!L4"}, "both wants and excludes 'L4'"),
        ({"memory": "4Gi"}, {"gpu_model": ",,,"}, "names nothing; write it like A100,H100"),
        ({"memory": "4Gi"}, {"gpus": "2", "gpu_uuid": "GPU-a"}, "names only 1"),
        ({"memory": "4Gi"}, {"group": "train"}, "needs aliquot.dev/group-size"),
        ({"memory": "4Gi"}, {"group_size": "4"}, "needs aliquot.dev/group beside it"),
        ({"memory": "5", "compute": "30"}, {"gpus": "2"}, "5 memory units cannot be split"),
    ],
)
def test_requests_that_can_never_work_are_refused(asked, annotations, text):
    answer = review(pod(container(**asked), **annotations))
    assert not answer.allowed
    assert answer.code == 422
    assert answer.patch == []
    assert text in answer.message


@pytest.mark.parametrize(
    ("place", "covers"),
    [
        ("/etc/aliquot", "/etc/aliquot"),
        ("/etc/aliquot/memory", "/etc/aliquot"),
        ("/etc", "/etc/aliquot"),
        ("//etc/", "/etc/aliquot"),
        ("/etc/./foo/..", "/etc/aliquot"),
        ("etc", "/etc/aliquot"),
        ("/", "/etc/aliquot"),
        ("/run", "/run/aliquot"),
        ("/var/run", "/run/aliquot"),
        ("/var/run/aliquot/memory", "/run/aliquot"),
        ("/usr/local/lib", "/usr/local/lib/aliquot"),
        ("/usr", "/usr/local/lib/aliquot"),
        ("/etc/ld.so.preload", "/etc/ld.so.preload"),
        ("/etc/aliquot.d", None),
        ("/etc/app", None),
        ("/var/run/secrets/kubernetes.io/serviceaccount", None),
        ("/run/docker.sock", None),
        ("/usr/local/lib/python3", None),
        ("/data", None),
    ],
)
def test_mounts_over_our_paths_and_their_parents(place, covers):
    assert covered_path(place) == covers
    answer = review(pod(sharing(volumeMounts=[{"name": "v", "mountPath": place}])))
    assert answer.allowed is (covers is None)
    if covers:
        assert f"mounts a volume at {place}, which covers {covers}" in answer.message


def test_mounts_of_containers_that_share_no_gpu_are_their_own_business():
    beside = {**container("proxy"), "volumeMounts": [{"name": "v", "mountPath": "/run"}]}
    assert review(pod(sharing(), beside)).allowed


def test_block_devices_are_mounts_as_well():
    answer = review(pod(sharing(volumeDevices=[{"name": "v", "devicePath": "/etc/aliquot"}])))
    assert "which covers /etc/aliquot" in answer.message


@pytest.mark.parametrize(
    ("variable", "in_ours", "beside_ours"),
    [
        ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, False, False),
        ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}, False, True),
        ({"name": "NVIDIA_VISIBLE_DEVICES"}, False, True),
        ({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}, False, False),
        ({"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, True, True),
    ],
)
def test_nobody_reaches_for_gpus_round_us(variable, in_ours, beside_ours):
    answer = review(pod(sharing(env=[variable])))
    assert answer.allowed is in_ours
    if not in_ours:
        assert "choose GPUs with aliquot.dev/gpu-model" in answer.message
    beside = {**container("proxy"), "env": [variable]}
    assert review(pod(sharing(), beside)).allowed is beside_ours


def test_a_container_has_gpus_from_us_or_from_another_plugin():
    both = sharing()
    both["resources"]["limits"]["nvidia.com/gpu"] = "1"
    assert "asks for nvidia.com/gpu beside aliquot.dev" in review(pod(both)).message


@pytest.mark.parametrize("record", [names.PLAN, names.ACTUAL])
def test_our_records_are_written_by_our_accounts_only(record):
    writer = {names.PLAN: EXTENDER, names.ACTUAL: AGENT}[record]
    other = {names.PLAN: AGENT, names.ACTUAL: EXTENDER}[record]
    new = review(pod(sharing())).pod
    claimed = pod(sharing())
    claimed["metadata"]["annotations"][record] = "{}"
    answer = review(claimed)
    assert not answer.allowed
    assert answer.code == 403
    assert f"{record} is Aliquot's own record" in answer.message
    assert "remove it from the manifest" in answer.message
    changed = review(new).pod
    changed["metadata"]["annotations"][record] = "{}"
    assert not review(changed, new, user=other).allowed
    assert not review(changed, new, route="validate").allowed
    assert review(changed, new, user=writer).allowed
    assert review(changed, new, user=writer, route="validate").allowed
    # Once it is there, everybody may change the rest of the pod.
    labelled = {**changed, "metadata": {**changed["metadata"], "labels": {"a": "b"}}}
    assert review(labelled, changed).allowed


def test_the_shim_is_switched_off_only_where_that_is_allowed():
    answer = review(pod(sharing(), shim="off"))
    assert answer.code == 403
    assert "not allowed in namespace default" in answer.message
    settings = WebhookSettings(shim_off_namespaces=frozenset({"ops"}))
    assert review(pod(sharing(), shim="off"), settings=settings, namespace="ops").allowed
    assert not review(pod(sharing(), shim="off"), settings=settings).allowed
    stored = review(pod(sharing())).pod
    switched = review(pod(sharing(), shim="off"), settings=settings, namespace="ops").pod
    assert not review(switched, stored).allowed
    # What an administrator let in does not freeze when the namespace is struck from the list.
    assert review(switched, switched).allowed


@pytest.mark.parametrize("rule", InitContainerRule)
def test_init_containers_with_a_share(rule):
    new = pod(container())
    new["spec"]["initContainers"] = [container("prepare", memory="4Gi", compute="30")]
    answer = review(new, settings=WebhookSettings(init_containers=rule))
    assert answer.allowed is (rule is not InitContainerRule.REFUSE)
    told = answer.message + "".join(answer.warnings)
    assert ("use a sidecar (restartPolicy: Always)" in told) is (
        rule is not InitContainerRule.ALLOW
    )
    sidecar = pod(container())
    sidecar["spec"]["initContainers"] = [
        {**container("proxy", memory="4Gi", compute="30"), "restartPolicy": "Always"}
    ]
    assert review(sidecar, settings=WebhookSettings(init_containers=rule)).allowed


def test_debug_containers_cannot_reach_for_other_gpus():
    stored = review(pod(sharing())).pod
    debug = {"name": "debug", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    with_debug = {**stored, "spec": {**stored["spec"], "ephemeralContainers": [debug]}}
    assert "container debug sets NVIDIA_VISIBLE_DEVICES" in review(with_debug, stored).message
    assert review(with_debug, with_debug).allowed
    plain = {**stored, "spec": {**stored["spec"], "ephemeralContainers": [{"name": "debug"}]}}
    assert review(plain, stored).allowed


def test_everything_that_is_wrong_is_said_at_once():
    wrong = sharing(
        env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        volumeMounts=[{"name": "v", "mountPath": "/etc"}],
    )
    answer = review(pod(wrong), catalog=ONE_KIND)
    assert "NVIDIA_VISIBLE_DEVICES" in answer.message
    assert "/etc/aliquot" in answer.message


def test_a_weight_without_borrowing_is_a_warning():
    answer = review(pod(sharing(), compute_policy="fixed", compute_weight="5"))
    assert answer.allowed
    assert "has no effect with aliquot.dev/compute-policy: fixed" in answer.warnings[0]
