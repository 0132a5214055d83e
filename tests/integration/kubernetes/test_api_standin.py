"""The stand-in keeps the API server's rules, on which other tests rely."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aliquot.kubernetes import paths
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from aliquot.kubernetes.objects import Node, Pod
from simcluster.apiserver import ApiServer, RejectedError, node, pod
from tests.conformance import differences

WEB = paths.pod_path("default", "web")


def test_it_answers_as_a_real_server_did(client: ApiClient) -> None:
    assert differences(client) == []


def refused(call: Any, *arguments: Any, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **options)
    return caught.value


def bind(client: ApiClient, target: str, uid: str = "", version: str = "") -> None:
    metadata = {"name": "web", "uid": uid, "resourceVersion": version}
    body = {"metadata": metadata, "target": {"kind": "Node", "name": target}}
    client.create(paths.binding_path("default", "web"), body)


def test_a_pod_is_bound_once_and_only_the_one_that_was_meant(
    server: ApiServer, client: ApiClient
) -> None:
    uid = server.add(pod("web"))["metadata"]["uid"]
    assert refused(bind, client, "n1", "of an earlier pod").conflict
    assert refused(bind, client, "n1", uid, "1").conflict
    bind(client, "n1", uid, client.get(WEB, Pod).metadata.resource_version)
    assert client.get(WEB, Pod).spec.node_name == "n1"
    twice = refused(bind, client, "n2", uid)
    assert twice.conflict
    assert "already assigned" in twice.message
    server.remove(WEB)
    assert refused(bind, client, "n1").not_found


def test_a_terminating_pod_is_not_bound(server: ApiServer, client: ApiClient) -> None:
    made = pod("web")
    made["metadata"]["finalizers"] = ["example.com/wait"]
    server.add(made)
    client.delete(WEB)
    assert "being deleted" in refused(bind, client, "n1").message


def test_a_running_pod_ends_with_grace_and_others_at_once(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(pod("web", node="n1", phase="Running"))
    client.delete(WEB)
    assert client.get(WEB, Pod).metadata.deletion_timestamp
    client.delete(WEB, grace_s=0)
    assert server.get(WEB) is None
    server.add(pod("web", node="n1", phase="Succeeded"))
    client.delete(WEB)
    assert server.get(WEB) is None
    server.add(pod("web"))
    client.delete(WEB)
    assert server.get(WEB) is None


def test_finalizers_keep_an_object_until_they_are_gone(
    server: ApiServer, client: ApiClient
) -> None:
    made = node("n1")
    made["metadata"]["finalizers"] = ["example.com/wait"]
    server.add(made)
    path = paths.node_path("n1")
    client.delete(path)
    assert client.get(path, Node).metadata.deletion_timestamp
    client.patch(path, {"metadata": {"finalizers": None}})
    assert server.get(path) is None


def test_an_eviction_deletes_unless_a_budget_forbids_it(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(pod("web", node="n1", phase="Running"))
    server.fail(429, "TooManyRequests", "the disruption budget web needs 1", path="eviction$")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    path = paths.eviction_path("default", "web")
    assert refused(client.create, path, eviction).status == 429
    other = eviction | {"deleteOptions": {"preconditions": {"uid": "of an earlier pod"}}}
    assert refused(client.create, path, other).conflict
    client.create(path, eviction)
    assert client.get(WEB, Pod).metadata.deletion_timestamp


def test_spec_and_status_are_changed_in_their_own_places(
    server: ApiServer, client: ApiClient
) -> None:
    client.create(paths.pods_path("default"), pod("web", phase="Running"))
    assert client.get(WEB, Pod).status.phase == "Pending"
    client.patch(WEB, {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}})
    assert client.get(WEB, Pod).status.phase == "Pending"
    client.patch(f"{WEB}/status", {"status": {"phase": "Running"}})
    assert client.get(WEB, Pod).status.phase == "Running"
    assert refused(client.patch, WEB, {"spec": {"nodeName": "n1"}}).status == 422
    assert refused(client.patch, WEB, {"metadata": {"uid": "of an earlier pod"}}).conflict
    assert refused(client.create, paths.pods_path("default"), {"metadata": {"name": "x"}}).is_final


def test_a_write_that_changes_nothing_makes_no_version(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(node("n1", labels={"a": "b"}))
    before = server.version
    client.patch(paths.node_path("n1"), {"metadata": {"labels": {"a": "b"}}})
    assert server.version == before


@pytest.mark.parametrize(
    ("kind", "patch", "taints"),
    [
        ("merge", {"spec": {"taints": [{"key": "b"}]}}, ["b"]),
        ("strategic", {"spec": {"taints": [{"key": "b"}]}}, ["a", "b"]),
        ("strategic", {"spec": {"taints": [{"key": "a", "$patch": "delete"}]}}, []),
        ("json", [{"op": "add", "path": "/spec/taints/-", "value": {"key": "b"}}], ["a", "b"]),
        ("json", [{"op": "remove", "path": "/spec/taints/0"}], []),
    ],
)
def test_each_kind_of_patch_treats_lists_in_its_way(
    server: ApiServer, client: ApiClient, kind: Any, patch: Any, taints: list[str]
) -> None:
    server.add(node("n1") | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    client.patch(paths.node_path("n1"), patch, kind=kind)
    found = client.get(paths.node_path("n1"), Node)
    assert [each.key for each in found.spec.taints] == taints


def test_a_failed_test_of_a_json_patch_changes_nothing(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(node("n1", labels={"a": "b"}))
    steps = [
        {"op": "replace", "path": "/metadata/labels/a", "value": "c"},
        {"op": "test", "path": "/metadata/labels/a", "value": "x"},
    ]
    assert refused(client.patch, paths.node_path("n1"), steps, kind="json").status == 422
    assert client.get(paths.node_path("n1"), Node).metadata.labels == {"a": "b"}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("app=web", ["a"]),
        ("app!=web", ["b", "c"]),
        ("app in (web, db)", ["a", "b"]),
        ("app notin (web),app", ["b"]),
        ("!app", ["c"]),
    ],
)
def test_label_selectors(
    server: ApiServer, client: ApiClient, selector: str, chosen: list[str]
) -> None:
    server.add(pod("a", labels={"app": "web"}))
    server.add(pod("b", labels={"app": "db"}))
    server.add(pod("c"))
    found = client.list(paths.PODS, Pod, label_selector=selector)
    assert [each.metadata.name for each in found.items] == chosen


def test_an_unknown_field_selector_is_refused(server: ApiServer, client: ApiClient) -> None:
    failure = refused(client.list, paths.PODS, Pod, field_selector="spec.colour=red")
    assert failure.status == 400


def test_pages_show_the_moment_of_the_first(server: ApiServer, client: ApiClient) -> None:
    for name in "abcd":
        server.add(pod(name))
    version = server.version
    second_page = server.hold(method="GET", skip=1)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(client.list, paths.PODS, Pod, limit=2)
        assert second_page.reached.wait(60)
        server.remove(paths.pod_path("default", "d"))
        second_page.open()
        listing = reading.result(60)
    assert [each.metadata.name for each in listing.items] == ["a", "b", "c", "d"]
    assert listing.resource_version == str(version)


def test_admission_may_refuse_and_change(server: ApiServer, client: ApiClient) -> None:
    def hook(operation: str, old: Any, new: Any) -> Any:
        if operation == "DELETE":
            raise RejectedError("nodes stay")
        return {**new, "spec": {"unschedulable": True}}

    server.admission = hook
    client.create(paths.NODES, node("n1"))
    assert client.get(paths.node_path("n1"), Node).spec.unschedulable
    denied = refused(client.delete, paths.node_path("n1"))
    assert denied.forbidden
    assert denied.message == "nodes stay"


def test_a_watch_from_the_future_is_silent(server: ApiServer, client: ApiClient) -> None:
    watch = client.watch(paths.PODS, Pod, str(server.version + 1), timeout_s=1)
    server.add(pod("a"))
    server.add(pod("b"))
    assert [each.object.metadata.name for each in watch] == ["b"]


@pytest.mark.parametrize("kind", ["merge", "strategic"])
def test_another_pods_uid_is_a_conflict_for_every_write(
    server: ApiServer, client: ApiClient, kind: Any
) -> None:
    server.add(pod("web"))
    other = {"metadata": {"name": "web", "uid": "of an earlier pod"}}
    patched = refused(client.patch, WEB, other, kind=kind)
    assert (patched.status, patched.conflict, patched.is_final) == (422, True, False)
    replaced = refused(client.update, WEB, pod("web") | other)
    assert (replaced.status, replaced.conflict) == (409, True)
