"""What a real API server answers, step by step; recorded from kube-apiserver 1.36.

The stand-in is held against it in every run of the tests, a real cluster in the end-to-end tests.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from aliquot.kubernetes import paths
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from aliquot.kubernetes.objects import ObjectMeta, Pod

__all__ = ["differences"]

WEB = paths.pod_path("default", "conformance")
PODS = paths.pods_path("default")
BINDING = paths.binding_path("default", "conformance")
EVICTION = paths.eviction_path("default", "conformance")
# Of leases nobody else writes one: a Node would be changed by controllers in between.
LEASES = paths.leases_path("default")
LEASE = paths.lease_path("default", "conformance")

OTHER_UID = "7f3e1c2a-0000-4000-8000-000000000001"
NAMED = {"metadata": {"name": "conformance"}}
MADE_POD = {
    "metadata": {"name": "conformance"},
    # Nobody shall schedule it meanwhile.
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
}
MADE_LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "conformance"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 1},
}
CONFLICT, EXISTS, MISSING = (409, "Conflict"), (409, "AlreadyExists"), (404, "NotFound")
INVALID = (422, "Invalid")


class _Any(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def differences(client: ApiClient) -> list[str]:
    """Where the server behind `client` answers otherwise; it is left as it was."""
    found = []
    try:
        for name, act, expected in _steps(client):
            try:
                answer = act()
            except ApiError as error:
                answer = error.status, error.reason
            if answer != expected:
                found.append(f"{name}: {answer!r} and not {expected!r}")
    finally:
        for path in (WEB, LEASE):
            try:
                client.delete(path, grace_s=0)
            except ApiError:
                continue
    return found


def _steps(client: ApiClient) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    yield from _of_objects(client)
    yield "create a pod", lambda: client.create(PODS, MADE_POD).name, "conformance"
    pod = client.get(WEB, Pod).metadata
    yield from _of_patches(client, pod.uid)
    yield from _of_bindings(client, pod.uid, pod.resource_version)
    yield from _of_ends(client, pod.uid)


def _of_objects(client: ApiClient) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    yield "create", lambda: client.create(LEASES, MADE_LEASE).name, "conformance"
    yield "create twice", lambda: client.create(LEASES, MADE_LEASE), EXISTS
    stale = client.get(LEASE, _Any).metadata.resource_version
    note = {"metadata": {"annotations": {"a": "1"}}}
    yield "annotate", lambda: client.patch(LEASE, note).annotations["a"], "1"
    version = client.get(LEASE, _Any).metadata.resource_version
    yield "patch without change", lambda: client.patch(LEASE, note).resource_version, version
    old = {"metadata": {"name": "conformance", "resourceVersion": stale, "labels": {"q": "r"}}}
    yield "patch an old version", lambda: client.patch(LEASE, old), CONFLICT
    yield "replace an old version", lambda: client.update(LEASE, old), CONFLICT
    yield "replace any version", lambda: client.update(LEASE, MADE_LEASE), INVALID
    yield "delete another", lambda: client.delete(LEASE, uid=OTHER_UID), CONFLICT
    yield "get nothing", lambda: client.get(f"{LEASES}/nobody", _Any), MISSING
    held = {"metadata": {"finalizers": ["example.com/wait"]}}
    yield "hold", lambda: client.patch(LEASE, held).name, "conformance"
    yield "delete what is held", lambda: client.delete(LEASE), None
    is_ending = lambda: bool(client.get(LEASE, _Any).metadata.deletion_timestamp)  # noqa: E731
    yield "held while it ends", is_ending, True
    free = {"metadata": {"finalizers": None}}
    yield "let go", lambda: client.patch(LEASE, free).name, "conformance"
    yield "gone when let go", lambda: client.get(LEASE, _Any), MISSING
    yield "create anew", lambda: client.create(LEASES, MADE_LEASE).name, "conformance"
    nobody = {"spec": {"holderIdentity": ""}}
    yield "release a lease", lambda: client.patch(LEASE, nobody).name, "conformance"


def _of_patches(client: ApiClient, uid: str) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    yield "no containers", lambda: client.create(PODS, NAMED), INVALID
    yield "no name", lambda: client.create(PODS, MADE_POD | {"metadata": {}}), INVALID
    yield "first phase", lambda: client.get(WEB, Pod).status.phase, "Pending"
    other = {"metadata": {"uid": OTHER_UID, "annotations": {"a": "b"}}}
    yield "patch another", lambda: client.patch(WEB, other), INVALID
    yield "patch another strategically", lambda: client.patch(WEB, other, kind="strategic"), INVALID
    same = {"metadata": {"uid": uid, "annotations": {"a": "b"}}}
    yield "patch this one", lambda: client.patch(WEB, same).annotations, {"a": "b"}
    step = {"path": "/metadata/annotations/a", "value": "b"}
    tested = [{"op": "test", **step}, {"op": "remove", **step}]
    yield "test and remove", lambda: client.patch(WEB, tested, kind="json").annotations, {}
    yield "test in vain", lambda: client.patch(WEB, tested, kind="json"), INVALID
    placed = {"spec": {"nodeName": "conformance"}}
    yield "bind by a patch", lambda: client.patch(WEB, placed), INVALID
    running = {"status": {"phase": "Running"}}
    yield "status in the wrong place", lambda: client.patch(WEB, running).name, "conformance"
    yield "phase as before", lambda: client.get(WEB, Pod).status.phase, "Pending"


def _of_bindings(
    client: ApiClient, uid: str, stale: str
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    def bind(**metadata: str) -> str:
        body = {
            "metadata": {"name": "conformance", **metadata},
            "target": {"kind": "Node", "name": "conformance"},
        }
        return client.create(BINDING, body).name

    yield "bind another", lambda: bind(uid=OTHER_UID), CONFLICT
    yield "bind an old version", lambda: bind(uid=uid, resourceVersion=stale), CONFLICT
    version = client.get(WEB, Pod).metadata.resource_version
    yield "bind", lambda: bind(uid=uid, resourceVersion=version), ""
    yield "bound", lambda: client.get(WEB, Pod).spec.node_name, "conformance"
    yield "bind twice", lambda: bind(uid=uid), CONFLICT
    by_node = "spec.nodeName=conformance"
    yield (
        "list by node",
        lambda: [
            each.metadata.name
            for each in client.list(paths.PODS, Pod, field_selector=by_node).items
        ],
        ["conformance"],
    )
    wrong = "spec.colour=red"
    yield (
        "list by nonsense",
        lambda: client.list(paths.PODS, Pod, field_selector=wrong),
        (400, "BadRequest"),
    )


def _of_ends(client: ApiClient, uid: str) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    running = {"status": {"phase": "Running"}}
    yield "status", lambda: client.patch(f"{WEB}/status", running).name, "conformance"
    yield "phase", lambda: client.get(WEB, Pod).status.phase, "Running"

    def evict(pod_uid: str) -> str:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "conformance", "namespace": "default"},
            "deleteOptions": {"preconditions": {"uid": pod_uid}},
        }
        return client.create(EVICTION, body).name

    yield "evict another", lambda: evict(OTHER_UID), CONFLICT
    yield "evict", lambda: evict(uid), ""
    is_ending = lambda: bool(client.get(WEB, Pod).metadata.deletion_timestamp)  # noqa: E731
    yield "ends with grace", is_ending, True
    yield "end at once", lambda: client.delete(WEB, grace_s=0), None
    yield "ended", lambda: client.get(WEB, Pod), MISSING
    yield "evict nobody", lambda: evict(uid), MISSING
    future = str(10**9)
    yield "watch the future", lambda: list(client.watch(paths.PODS, Pod, future, timeout_s=1)), []
