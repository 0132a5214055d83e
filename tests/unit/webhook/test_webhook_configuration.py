"""The objects that register the webhook: valid, closed for our pods, out of the way of others."""

import kubernetes_validate
import pytest

from scheduler_ext.webhook import webhook_configurations

MUTATING, VALIDATING = webhook_configurations("aliquot-system")


@pytest.mark.parametrize("each", [MUTATING, VALIDATING], ids=lambda each: each["kind"])
def test_kubernetes_knows_every_field(each):
    kubernetes_validate.validate(each, "1.37", strict=True)


def test_pods_are_refused_and_quotas_let_pass_when_nobody_answers():
    policies = {
        webhook["name"]: webhook["failurePolicy"]
        for each in (MUTATING, VALIDATING)
        for webhook in each["webhooks"]
    }
    assert policies == {
        "pods.mutate.aliquot.dev": "Fail",
        "pods.validate.aliquot.dev": "Fail",
        "quotas.validate.aliquot.dev": "Ignore",
    }


def test_only_pods_that_name_us_are_sent():
    for each in (MUTATING, VALIDATING):
        names, changes = each["webhooks"][0]["matchConditions"]
        assert "startsWith('aliquot.dev/')" in names["expression"]
        assert "oldObject.spec" in changes["expression"]
        # kube-apiserver accepts no longer ones.
        assert all(len(one["expression"]) < 16_384 for one in (names, changes))
    resources = MUTATING["webhooks"][0]["rules"][0]["resources"]
    assert resources == ["pods", "pods/ephemeralcontainers"]


def test_our_conversion_is_repeated_when_others_change_the_pod_after_it():
    assert MUTATING["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
