"""AdmissionReviews are answered as the API server expects, whatever comes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.protocol import names
from scheduler_ext.webhook import MalformedReviewError, Webhook, WebhookSettings
from scheduler_ext.webhook.patch import json_patch
from tests.unit.webhook.admission_cases import ONE_KIND, TWO_KINDS, container, patched, pod, review

WEBHOOK = Webhook(WebhookSettings(), lambda: ONE_KIND)


@pytest.mark.parametrize("route", [WEBHOOK.mutate, WEBHOOK.validate])
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no AdmissionReview"),
        (b"{", "no AdmissionReview"),
        (b"[]", "no AdmissionReview"),
        (b"\xff\xfe", "no AdmissionReview"),
        (b"[" * 20_000, "no AdmissionReview"),
        (b'{"apiVersion":"admission.k8s.io/v1"}', "request"),
        (
            (
                b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"1","operation":"CREATE",'
                b'"kind":{"kind":"Pod"}}}'
            ),
            "only admission.k8s.io/v1 is spoken here, not admission.k8s.io/v1beta1",
        ),
        (
            (
                b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",'
                b'"kind":{"kind":"Pod"},"object":{"metadata":{},"spec":{"containers":7}}}}'
            ),
            "the object is not a pod",
        ),
        (
            (
                b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"UPDATE",'
                b'"kind":{"kind":"Pod"},"object":{"metadata":{},"spec":{}},"oldObject":null}}'
            ),
            "the object is not a pod",
        ),
    ],
)
def test_what_is_no_review_is_said_to_be_none(route, body, text):
    with pytest.raises(MalformedReviewError, match=text):
        route(body)


def test_other_objects_and_operations_pass():
    other = {"kind": "ConfigMap", "metadata": {}}
    for route in ("mutate", "validate"):
        answer = review(other, route=route)
        assert answer.allowed
        assert answer.patch == []


def test_fields_that_are_null_or_missing_are_as_good_as_empty():
    bare = {"kind": "Pod", "metadata": {"annotations": None}, "spec": {"containers": None}}
    assert review(bare).allowed
    one = {
        "name": "main",
        "resources": {"limits": {names.MEMORY_RESOURCE: "4Gi"}, "requests": None},
    }
    bare["spec"] = {"containers": [one], "initContainers": None}
    assert review(bare).limits() == ("16", "10")
    bare["spec"] = {"containers": [{"name": "main", "resources": None, "env": None}]}
    assert review(bare).allowed


def test_a_quota_in_bytes_is_a_warning_with_the_right_number():
    def quota(amount):
        return {
            "kind": "ResourceQuota",
            "metadata": {"name": "team"},
            "spec": {"hard": {f"requests.{names.MEMORY_RESOURCE}": amount}},
        }

    answer = review(quota("40Gi"), route="validate")
    assert answer.allowed
    assert answer.warnings == [
        (
            "requests.aliquot.dev/gpu-memory counts units of 256 MiB, not bytes: "
            "40Gi limits nothing; write 160"
        )
    ]
    assert review(quota("160"), route="validate").warnings == []
    assert review(quota("nonsense"), route="validate").warnings == []
    assert review({"kind": "ResourceQuota", "spec": None}, route="validate").warnings == []


amounts = st.sampled_from(["0", "1", "16", "30", "100", "150", "200", "4Gi", "300Mi", "500m", "x"])
containers = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | amounts, st.none() | amounts),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
)
annotations = st.dictionaries(
    st.sampled_from(["gpus", "compute_policy", "gpu_model", "placement", "group", "shim"]),
    st.sampled_from(["1", "2", "best-effort", "L4", "!L4", "pack", "train", "on", "off", ""]),
    max_size=3,
)


@settings(max_examples=400)
@given(asked=containers, said=annotations, two_kinds=st.booleans())
def test_an_admitted_pod_is_settled_for_good(asked, said, two_kinds):
    catalog = TWO_KINDS if two_kinds else ONE_KIND
    each = [
        container(
            name,
            **{
                key: text
                for key, text in (("memory", memory), ("compute", compute))
                if text is not None
            },
        )
        for name, memory, compute in asked
    ]
    manifest = pod(*each, **said)
    answer = review(manifest, catalog=catalog)
    if not answer.allowed:
        assert answer.message
        assert answer.patch == []
        return
    again = review(answer.pod, catalog=catalog)
    assert again.allowed
    assert again.patch == []
    assert review(answer.pod, catalog=catalog, route="validate").allowed
    updated = review(manifest, answer.pod, catalog=catalog)
    assert updated.allowed
    assert updated.pod["spec"] == answer.pod["spec"]
    assert all(len(text) <= 256 for text in answer.warnings)
    for name, *_ in asked:
        memory, compute = (int(text or 0) for text in answer.limits(name))
        # Everybody who holds something holds compute; only whole GPUs go without memory.
        assert not memory or compute
        assert not compute or memory or compute % 100 == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet="a/~0", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(["a", "b/c", "~d"]), json_values)


@settings(max_examples=400)
@given(before=documents, after=documents)
def test_a_patch_turns_one_document_into_the_other(before, after):
    operations = json_patch(before, after)
    assert json.dumps(patched(before, operations), sort_keys=True) == json.dumps(
        after, sort_keys=True
    )
    assert (operations == []) == (before == after)
