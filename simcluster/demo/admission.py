"""How the API server asks the admission webhook: reviews over HTTP, answered by JSON patches."""

import base64
import json
import urllib.request
from typing import Any

from simcluster.apiserver import RejectedError
from simcluster.apiserver.patches import json_patch

__all__ = ["webhook_admission"]

Object = dict[str, Any]
TIMEOUT_S = 60


def webhook_admission(url: str) -> Any:
    """An admission hook for the stand-in: new pods pass the mutating, then the validating one."""

    def admit(operation: str, old: Object | None, new: Object | None) -> Object | None:
        if operation != "CREATE" or new is None or new.get("kind") != "Pod":
            return None
        patch = _review(f"{url}/mutate", new)
        changed: Object = json_patch(new, patch)
        _review(f"{url}/validate", changed)
        return changed

    return admit


def _review(url: str, pod: Object) -> list[Object]:
    metadata = pod["metadata"]
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": metadata["uid"],
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "userInfo": {"username": "demo"},
            "object": pod,
        },
    }
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        response = json.load(answer)["response"]
    if not response["allowed"]:
        raise RejectedError(response["status"]["message"])
    patch: list[Object] = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return patch
