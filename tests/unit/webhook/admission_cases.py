"""Pods and AdmissionReviews for the webhook's tests, and a patch applied as the server does."""

import base64
import copy
import json
from typing import Any

from aliquot.protocol import names
from scheduler_ext.webhook import GpuCatalog, GpuKind, Webhook, WebhookSettings

A100 = GpuKind("NVIDIA A100-SXM4-80GB", 320)
L4 = GpuKind("NVIDIA L4", 96)
ONE_KIND = GpuCatalog(frozenset({A100}), {"GPU-a": A100})
TWO_KINDS = GpuCatalog(frozenset({A100, L4}), {"GPU-a": A100, "GPU-l": L4})

EXTENDER = "system:serviceaccount:aliquot-system:aliquot-extender"
AGENT = "system:serviceaccount:aliquot-system:aliquot-agent"


def container(name: str = "main", **limits: str) -> dict[str, Any]:
    """`memory` and `compute` are ours; as the API server sends it, requests are limits."""
    ours = {"memory": names.MEMORY_RESOURCE, "compute": names.COMPUTE_RESOURCE}
    amounts = {ours[key]: text for key, text in limits.items()}
    resources = {"limits": amounts, "requests": dict(amounts)}
    return {"name": name, "image": "busybox", "resources": resources}


def pod(*containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "annotations": {
                f"{names.DOMAIN}/{key.replace('_', '-')}": text for key, text in annotations.items()
            },
        },
        "spec": {"schedulerName": "default-scheduler", "containers": list(containers)},
    }


class Answer:
    def __init__(self, sent: dict[str, Any], body: bytes) -> None:
        review = json.loads(body)
        assert review["apiVersion"] == "admission.k8s.io/v1"
        assert review["kind"] == "AdmissionReview"
        self.response = review["response"]
        assert self.response["uid"] == "review-1"
        self.allowed: bool = self.response["allowed"]
        self.message: str = self.response.get("status", {}).get("message", "")
        self.code: int = self.response.get("status", {}).get("code", 0)
        self.warnings: list[str] = self.response.get("warnings", [])
        self.patch: list[dict[str, Any]] = []
        if "patch" in self.response:
            assert self.response["patchType"] == "JSONPatch"
            self.patch = json.loads(base64.b64decode(self.response["patch"]))
        self.pod = patched(sent, self.patch)

    def limits(self, name: str = "main") -> tuple[str | None, str | None]:
        """Memory and compute of a container, which must be its requests as well."""
        spec = self.pod["spec"]
        every = spec["containers"] + (spec.get("initContainers") or [])
        resources = next(each["resources"] for each in every if each["name"] == name)
        assert resources["limits"] == resources["requests"]
        limits = resources["limits"]
        return limits.get(names.MEMORY_RESOURCE), limits.get(names.COMPUTE_RESOURCE)


def review(
    new: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    route: str = "mutate",
    settings: WebhookSettings | None = None,
    catalog: GpuCatalog = ONE_KIND,
    user: str = "kubernetes-admin",
    namespace: str = "default",
) -> Answer:
    webhook = Webhook(settings or WebhookSettings(), lambda: catalog)
    request = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": new.get("kind", "Pod")},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": namespace,
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return Answer(new, getattr(webhook, route)(json.dumps(body).encode()))


def patched(value: Any, operations: list[dict[str, Any]]) -> Any:
    """As RFC 6902 says it: adding needs a parent, the others need the value itself."""
    value = copy.deepcopy(value)
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~")
            for part in operation["path"].removeprefix("/").split("/")
        ]
        place = value
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        key = int(last) if isinstance(place, list) else last
        if operation["op"] != "add":
            place[key]
        if operation["op"] == "remove":
            del place[key]
        else:
            place[key] = operation["value"]
    return value
