"""What the API server does for each verb: preconditions, defaults, sub-resources, deletion."""

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simcluster.apiserver.patches import PATCHES, BadPatchError
from simcluster.apiserver.store import Object, Store, timestamp

__all__ = [
    "Admission",
    "Operations",
    "RefusalError",
    "RejectedError",
    "Route",
    "parse_route",
    "status_body",
]

PODS = "/api/v1/*/pods"
LEASES = "/apis/coordination.k8s.io/v1/*/leases"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class RefusalError(Exception):
    """An answer that is not success."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_s = retry_after_s


class RejectedError(Exception):
    """Raised by a test's admission hook: the text goes to the client with status 403."""


Admission = Callable[[str, Object | None, Object | None], Object | None]
"""(operation, old, new): raises RejectedError, answers a changed `new`, or None to let it pass."""


@dataclass(frozen=True, slots=True)
class Route:
    prefix: str
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def collection(self) -> str:
        return f"{self.prefix}/*/{self.resource}"

    def path(self, name: str) -> str:
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{self.prefix}{within}/{self.resource}/{name}"


def parse_route(path: str) -> Route:
    words = path.strip("/").split("/")
    group = {"api": 2, "apis": 3}.get(words[0], 0)
    if not group or len(words) <= group:
        raise RefusalError(404, "NotFound", "the server could not find the requested resource")
    prefix, rest, namespace = "/" + "/".join(words[:group]), words[group:], ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = [*rest, "", ""][:3]
    return Route(prefix, resource, namespace, name, subresource)


def status_body(status: int, reason: str, message: str, retry_after_s: int = 0) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if status < 400 else "Failure",
        "reason": reason,
        "message": message,
        "code": status,
        "details": {"retryAfterSeconds": retry_after_s} if retry_after_s else {},
    }


class Operations:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.admission: Admission | None = None

    def get(self, route: Route) -> Object:
        found = self.store.get(route.path(route.name))
        if found is None:
            raise _not_found(route)
        return found

    def create(self, route: Route, body: Object) -> Object:
        if route.subresource:
            return self._create_subresource(route, body)
        metadata = dict(body.get("metadata") or {})
        if metadata.setdefault("namespace", route.namespace) != route.namespace:
            raise RefusalError(400, "BadRequest", "the namespace is not the one of the request")
        if not route.namespace:
            del metadata["namespace"]
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise RefusalError(422, "Invalid", "name or generateName is required")
            metadata["name"] = metadata["generateName"] + "".join(random.choices(_LETTERS, k=5))
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        new = {**body, "metadata": metadata}
        if route.collection == PODS:
            if not (body.get("spec") or {}).get("containers"):
                raise RefusalError(422, "Invalid", "spec.containers: Required value")
            new["status"] = {"phase": "Pending"}
        new = self._admit("CREATE", None, new)
        path = route.path(metadata["name"])
        with self.store.changed:
            if self.store.get(path) is not None:
                raise RefusalError(
                    409, "AlreadyExists", f'{route.resource} "{metadata["name"]}" already exists'
                )
            return self._written(path, new)

    def replace(self, route: Route, body: Object) -> Object:
        if route.collection == LEASES and not (body.get("metadata") or {}).get("resourceVersion"):
            raise RefusalError(422, "Invalid", "metadata.resourceVersion: must be specified")
        return self._change(route, lambda _: {**body, "metadata": dict(body.get("metadata") or {})})

    def patch(self, route: Route, content_type: str, body: Any) -> Object:
        if content_type not in PATCHES:
            raise RefusalError(415, "UnsupportedMediaType", f"no patch is of type {content_type}")
        apply = PATCHES[content_type]

        def change(old: Object) -> Object:
            try:
                new: Object = apply(old, body)
            except BadPatchError as error:
                raise RefusalError(error.status, "Invalid", str(error)) from error
            metadata = dict(new["metadata"])
            if metadata.get("uid") != old["metadata"]["uid"]:
                raise RefusalError(
                    422,
                    "Invalid",
                    f'{route.resource} "{route.name}" is invalid: metadata.uid: Invalid value: '
                    f'"{metadata.get("uid")}": field is immutable',
                )
            # What the patch does not name is not a precondition.
            if not isinstance(body, dict) or "resourceVersion" not in body.get("metadata", {}):
                metadata.pop("resourceVersion", None)
            return {**new, "metadata": metadata}

        return self._change(route, change)

    def delete(self, route: Route, options: Object) -> Object:
        path = route.path(route.name)
        old = self.get(route)
        self._admit("DELETE", old, None)
        with self.store.changed:
            old = self.get(route)
            _check_preconditions(old, options.get("preconditions") or {})
            metadata = old["metadata"]
            grace_s = options.get("gracePeriodSeconds")
            if route.collection == PODS:
                grace_s = _pod_grace_s(old, grace_s)
            if metadata.get("finalizers") or grace_s:
                if metadata.get("deletionTimestamp"):
                    return old
                when = time.gmtime(time.time() + (grace_s or 0))
                marked = {
                    **metadata,
                    "deletionTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", when),
                    "deletionGracePeriodSeconds": grace_s or 0,
                }
                return self._written(path, {**old, "metadata": marked})
            removed = self.store.write(path, None)
            assert removed is not None
            return removed

    def _create_subresource(self, route: Route, body: Object) -> Object:
        if route.collection == PODS and route.subresource == "binding":
            self._bind(route, body)
        elif route.collection == PODS and route.subresource == "eviction":
            self.delete(route, body.get("deleteOptions") or {})
        else:
            raise RefusalError(404, "NotFound", f"{route.resource} have no {route.subresource}")
        return status_body(201, "", "")

    def _bind(self, route: Route, body: Object) -> None:
        target = (body.get("target") or {}).get("name", "")
        if not target:
            raise RefusalError(422, "Invalid", "target.name: Required value")
        self._admit("CREATE", None, body)
        with self.store.changed:
            old = self.get(route)
            wanted = body.get("metadata") or {}
            keys = ("uid", "resourceVersion")
            _check_preconditions(old, {key: wanted[key] for key in keys if wanted.get(key)})
            if old["metadata"].get("deletionTimestamp"):
                raise RefusalError(
                    409, "Conflict", f"pod {route.name} is being deleted, cannot be assigned"
                )
            spec = old["spec"]
            if spec.get("nodeName"):
                raise RefusalError(
                    409,
                    "Conflict",
                    f"pod {route.name} is already assigned to node {spec['nodeName']!r}",
                )
            annotations = {
                **(old["metadata"].get("annotations") or {}),
                **(wanted.get("annotations") or {}),
            }
            metadata = {**old["metadata"], "annotations": annotations}
            bound = {**old, "metadata": metadata, "spec": {**spec, "nodeName": target}}
            self._written(route.path(route.name), bound)

    def _change(self, route: Route, change: Callable[[Object], Object]) -> Object:
        """Admission runs without a lock, so that a change in between begins anew."""
        if route.subresource not in ("", "status"):
            raise RefusalError(404, "NotFound", f"{route.resource} have no {route.subresource}")
        while True:
            old = self.get(route)
            new = change(old)
            metadata = new["metadata"]
            _check_preconditions(
                old,
                {
                    key: metadata[key]
                    for key in ("uid", "resourceVersion")
                    if metadata.get(key) not in (None, "")
                },
            )
            if metadata.get("name", route.name) != route.name:
                raise RefusalError(400, "BadRequest", "the name is not the one of the request")
            new = self._admit("UPDATE", old, _only_what_may_change(route, old, new))
            with self.store.changed:
                if self.store.get(route.path(route.name)) is not old:
                    continue
                return self._written(route.path(route.name), new)

    def _written(self, path: str, new: Object) -> Object:
        """A write that changes nothing makes no version; the last finalizer's end removes."""
        old = self.store.get(path)
        if old is not None and _unversioned(old) == _unversioned(new):
            return old
        metadata = new["metadata"]
        was_marked = old is not None and old["metadata"].get("deletionTimestamp")
        finished = was_marked and not metadata.get("finalizers")
        stored = self.store.write(path, new)
        if finished and not metadata.get("deletionGracePeriodSeconds"):
            stored = self.store.write(path, None)
        assert stored is not None
        return stored

    def _admit(self, operation: str, old: Object | None, new: Object | None) -> Any:
        if self.admission is None:
            return new
        try:
            return self.admission(operation, old, new) or new
        except RejectedError as error:
            raise RefusalError(403, "Forbidden", str(error)) from error


def _only_what_may_change(route: Route, old: Object, new: Object) -> Object:
    kept = {"uid", "creationTimestamp", "namespace", "name"}
    kept |= {"deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}
    metadata = {key: value for key, value in new["metadata"].items() if key not in kept}
    metadata |= {key: old["metadata"][key] for key in kept if key in old["metadata"]}
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    result = {**new, "metadata": metadata}
    if route.subresource == "status":
        _keep(result, old, "spec")
    elif route.collection in (PODS, "/api/v1/*/nodes"):
        _keep(result, old, "status")
    if route.collection == PODS and _fixed_spec(result) != _fixed_spec(old):
        raise RefusalError(
            422, "Invalid", "pod updates may not change fields other than a container's image"
        )
    return result


def _keep(new: Object, old: Object, field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _fixed_spec(pod: Object) -> Object:
    spec = dict(pod.get("spec") or {})
    spec.pop("tolerations", None)
    for field in ("containers", "initContainers"):
        spec[field] = [{**each, "image": ""} for each in spec.get(field) or []]
    return spec


def _pod_grace_s(pod: Object, asked_s: int | None) -> int:
    # Nobody has to stop anything when no kubelet has it, or when nothing runs any more.
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if is_over or not pod["spec"].get("nodeName"):
        return 0
    return 30 if asked_s is None else asked_s


def _check_preconditions(old: Object, wanted: Object) -> None:
    for key, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        found = old["metadata"].get(key)
        if key in wanted and wanted[key] != found:
            raise RefusalError(
                409,
                "Conflict",
                f"Precondition failed: {words} in precondition: {wanted[key]}, "
                f"{words} in object meta: {found}",
            )


def _unversioned(each: Object) -> Object:
    metadata = {key: value for key, value in each["metadata"].items() if key != "resourceVersion"}
    return {**each, "metadata": metadata}


def _not_found(route: Route) -> RefusalError:
    return RefusalError(404, "NotFound", f'{route.resource} "{route.name}" not found')
