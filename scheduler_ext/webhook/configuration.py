"""The webhook configurations: which requests the API server sends to us, and which it never does.

Only pods that name us are sent, and of their updates only those that change something we look at:
while no replica answers, such pods can be neither created nor changed, but everybody else's pods,
and the finalizers, labels and owners of ours, go on as ever.
"""

from typing import Any

from aliquot.protocol import names

__all__ = ["MUTATE_PATH", "VALIDATE_PATH", "webhook_configurations"]

MUTATE_PATH = "/mutate"
VALIDATE_PATH = "/validate"
_TIMEOUT_S = 5

_PREFIX = f"'{names.DOMAIN}/'"


def _names_us(pod: str) -> str:
    """CEL: one of our annotations or resources stands in the pod."""
    key = f"exists(k, k.startsWith({_PREFIX}))"
    in_resources = " || ".join(
        f"(has(c.resources) && has(c.resources.{kind}) && c.resources.{kind}.{key})"
        for kind in ("limits", "requests")
    )
    return (
        f"(has({pod}.metadata.annotations) && {pod}.metadata.annotations.{key}) || "
        f"{pod}.spec.containers.exists(c, {in_resources}) || "
        f"(has({pod}.spec.initContainers) && {pod}.spec.initContainers.exists(c, {in_resources}))"
    )


def _annotations_kept(one: str, other: str) -> str:
    """CEL: each of our annotations in `one` stands in `other` with the same value."""
    kept = (
        f"has({other}.metadata.annotations) && k in {other}.metadata.annotations && "
        f"{other}.metadata.annotations[k] == {one}.metadata.annotations[k]"
    )
    return (
        f"(!has({one}.metadata.annotations) || "
        f"{one}.metadata.annotations.all(k, !k.startsWith({_PREFIX}) || ({kept})))"
    )


NAMES_US = f"{_names_us('object')} || (oldObject != null && ({_names_us('oldObject')}))"
CHANGES_OURS = (
    "oldObject == null || object.spec != oldObject.spec || "
    f"!({_annotations_kept('object', 'oldObject')} && {_annotations_kept('oldObject', 'object')})"
)
_QUOTA_NAMES_US = (
    f"has(object.spec.hard) && object.spec.hard.exists(k, k == 'requests.{names.MEMORY_RESOURCE}')"
)
_POD_CONDITIONS = [
    {"name": "names-aliquot", "expression": NAMES_US},
    {"name": "changes-what-aliquot-reads", "expression": CHANGES_OURS},
]


def webhook_configurations(
    namespace: str, service: str = "aliquot-webhook", name: str = "aliquot"
) -> list[dict[str, Any]]:
    """Both objects as an administrator applies them; the caBundle is filled in by the extender."""

    def client(path: str) -> dict[str, Any]:
        return {"service": {"namespace": namespace, "name": service, "path": path, "port": 443}}

    pods = {
        "rules": [_rule("", ["CREATE", "UPDATE"], ["pods", "pods/ephemeralcontainers"])],
        "matchConditions": _POD_CONDITIONS,
        "failurePolicy": "Fail",
        **_usual(),
    }
    mutating = {
        "name": f"pods.mutate.{names.DOMAIN}",
        "clientConfig": client(MUTATE_PATH),
        "reinvocationPolicy": "IfNeeded",
        **pods,
    }
    validating = {
        "name": f"pods.validate.{names.DOMAIN}",
        "clientConfig": client(VALIDATE_PATH),
        **pods,
    }
    quotas = {
        "name": f"quotas.validate.{names.DOMAIN}",
        "clientConfig": client(VALIDATE_PATH),
        "rules": [_rule("", ["CREATE", "UPDATE"], ["resourcequotas"])],
        "matchConditions": [{"name": "counts-gpu-memory", "expression": _QUOTA_NAMES_US}],
        # It only ever warns.
        "failurePolicy": "Ignore",
        **_usual(),
    }
    return [
        _object("MutatingWebhookConfiguration", name, [mutating]),
        _object("ValidatingWebhookConfiguration", name, [validating, quotas]),
    ]


def _rule(group: str, operations: list[str], resources: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": resources,
        "scope": "Namespaced",
    }


def _usual() -> dict[str, Any]:
    return {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": _TIMEOUT_S,
    }


def _object(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "aliquot"}},
        "webhooks": webhooks,
    }
