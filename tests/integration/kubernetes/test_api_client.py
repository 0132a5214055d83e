"""Requests through the real client: what comes back, and what each failure looks like."""

import threading
from email.message import Message

import msgspec
import pytest

from aliquot.kubernetes import paths
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.client import _error as error_of
from aliquot.kubernetes.errors import ApiError, UnreachableError
from aliquot.kubernetes.objects import Node, Pod, created_s, request_of
from aliquot.kubernetes.watch import ChangeKind
from aliquot.protocol import names
from aliquot.protocol.request import Role
from simcluster.apiserver import ApiServer, node, pod
from simcluster.apiserver.operations import status_body


def test_get_reads_the_few_fields_that_we_need(server: ApiServer, client: ApiClient) -> None:
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"limits": {}}}
    made = pod("web", "team", node="n1", memory=16, compute=30, annotations={names.GPUS: "2"})
    made["spec"]["initContainers"] = [sidecar, {"name": "fetch"}]
    made["spec"]["containers"][0]["env"] = [{"name": "MODE", "value": "fast"}]
    stored = server.add(made)
    found = client.get(paths.pod_path("team", "web"), Pod)
    assert (found.metadata.uid, found.metadata.namespace) == (stored["metadata"]["uid"], "team")
    assert found.spec.node_name == "n1"
    assert [each.name for each in found.spec.containers[0].env] == ["MODE"]
    assert created_s(found.metadata) > 1.6e9
    request = request_of(found)
    assert (request.gpus, [each.memory_units for each in request.containers]) == (2, [16])


def test_roles_of_containers_come_from_their_place_and_restart_policy() -> None:
    limits = {"limits": {names.MEMORY_RESOURCE: "1", names.COMPUTE_RESOURCE: "5"}}
    made = pod("web", memory=4, compute=10)
    made["spec"]["initContainers"] = [
        {"name": "log", "restartPolicy": "Always", "resources": limits},
        {"name": "fetch", "resources": limits},
    ]
    request = request_of(msgspec.convert(made, Pod))
    assert {each.name: each.role for each in request.containers} == {
        "log": Role.SIDECAR,
        "fetch": Role.INIT,
        "main": Role.APP,
    }


def test_a_list_is_whole_over_its_pages(server: ApiServer, client: ApiClient) -> None:
    for number in range(7):
        server.add(pod(f"p{number}", node=f"n{number % 2}"))
    listing = client.list(paths.PODS, Pod, limit=2, field_selector="spec.nodeName=n0")
    assert [each.metadata.name for each in listing.items] == ["p0", "p2", "p4", "p6"]
    assert listing.resource_version == str(server.version)
    assert len(server.asked("GET")) == 2
    assert len(client.list(paths.PODS, Pod, limit=2, from_cache=True).items) == 7


def test_a_page_that_comes_too_late_is_gone(server: ApiServer, client: ApiClient) -> None:
    for number in range(4):
        server.add(pod(f"p{number}"))
    second_page = server.hold(method="GET", skip=1)
    failures: list[ApiError] = []

    def read() -> None:
        try:
            client.list(paths.PODS, Pod, limit=2)
        except ApiError as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert second_page.reached.wait(60)
    server.compact()
    second_page.open()
    reader.join(60)
    assert [each.gone for each in failures] == [True]


def test_a_watch_hands_out_what_changes_until_the_server_ends_it(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(pod("a", node="n1"))
    listing = client.list(paths.PODS, Pod)
    path = paths.pod_path("default", "a")
    server.merge(path, {"status": {"phase": "Running"}})
    server.add(pod("b", node="n2"))
    server.remove(path)
    watch = client.watch(
        paths.PODS, Pod, listing.resource_version, field_selector="spec.nodeName=n1", timeout_s=1
    )
    seen = [(each.kind, each.object.status.phase) for each in watch]
    assert seen == [(ChangeKind.MODIFIED, "Running"), (ChangeKind.DELETED, "Running")]
    assert watch.resource_version == str(server.version)


def test_bookmarks_move_the_version_of_a_watch_and_nothing_else(
    server: ApiServer, client: ApiClient
) -> None:
    listing = client.list(paths.PODS, Pod)
    watch = client.watch(paths.PODS, Pod, listing.resource_version)
    server.add(node("n1"))
    server.send_bookmarks()
    server.end_watches()
    assert list(watch) == []
    assert watch.resource_version == str(server.version)


def test_a_watch_can_be_ended_while_it_waits(server: ApiServer, client: ApiClient) -> None:
    watch = client.watch(paths.PODS, Pod, client.list(paths.PODS, Pod).resource_version)
    reader = threading.Thread(target=lambda: list(watch))
    reader.start()
    watch.close()
    reader.join(60)
    assert not reader.is_alive()


def test_a_silent_watch_ends_without_an_error(server: ApiServer, client: ApiClient) -> None:
    version = client.list(paths.PODS, Pod).resource_version
    watch = client.watch(paths.PODS, Pod, version, silence_s=0.2)
    assert list(watch) == []
    assert watch.resource_version == version


def test_a_broken_watch_is_unreachable(server: ApiServer, client: ApiClient) -> None:
    watch = client.watch(paths.PODS, Pod, client.list(paths.PODS, Pod).resource_version)
    server.drop_watches()
    with pytest.raises(UnreachableError):
        list(watch)


@pytest.mark.parametrize("as_status", [False, True])
def test_a_watch_from_before_compaction_is_gone(
    server: ApiServer, client: ApiClient, as_status: bool
) -> None:
    version = client.list(paths.PODS, Pod).resource_version
    server.add(pod("a"))
    server.compact(gone_as_status=as_status)
    with pytest.raises(ApiError) as caught:
        list(client.watch(paths.PODS, Pod, version))
    assert caught.value.gone


def test_writes_answer_the_new_metadata(server: ApiServer, client: ApiClient) -> None:
    made = pod("") | {"metadata": {"generateName": "job-"}}
    created = client.create(paths.pods_path("default"), made)
    assert created.name.startswith("job-")
    assert created.name != "job-"
    path = paths.pod_path("default", created.name)
    changed = client.patch(path, {"metadata": {"annotations": {"a": "1", "b": "2"}}})
    assert int(changed.resource_version) > int(created.resource_version)
    client.patch(path, {"metadata": {"annotations": {"a": None}}}, kind="strategic")
    steps = [{"op": "add", "path": "/metadata/annotations/aliquot.dev~1plan", "value": "x"}]
    last = client.patch(path, steps, kind="json")
    assert last.annotations == {"b": "2", "aliquot.dev/plan": "x"}
    client.delete(path, uid=created.uid)
    with pytest.raises(ApiError) as caught:
        client.get(path, Pod)
    assert caught.value.not_found


def test_conflicts_are_told_apart(server: ApiServer, client: ApiClient) -> None:
    server.add(node("n1"))
    stale = client.get(paths.node_path("n1"), Node)
    client.patch(paths.node_path("n1"), {"metadata": {"labels": {"a": "b"}}})
    body = node("n1") | {"metadata": {"name": "n1", "resourceVersion": "1"}}
    with pytest.raises(ApiError) as changed:
        client.update(paths.node_path("n1"), body)
    assert changed.value.conflict
    assert not changed.value.already_exists
    patch = {"metadata": {"resourceVersion": stale.metadata.resource_version, "labels": {}}}
    with pytest.raises(ApiError, match="Precondition failed"):
        client.patch(paths.node_path("n1"), patch)
    with pytest.raises(ApiError) as twice:
        client.create(paths.NODES, node("n1"))
    assert twice.value.already_exists
    with pytest.raises(ApiError) as other:
        client.delete(paths.node_path("n1"), uid="of an earlier one")
    assert other.value.conflict


def test_the_servers_words_reach_the_reader(server: ApiServer, client: ApiClient) -> None:
    server.fail(429, "TooManyRequests", "slow down", retry_after_s=7)
    with pytest.raises(ApiError, match="slow down") as caught:
        client.get(paths.NODES, Node)
    assert (caught.value.retry_after_s, caught.value.is_final) == (7, False)
    server.fail(403, "Forbidden", 'pods is forbidden: User "x" cannot list resource "pods"')
    with pytest.raises(ApiError, match="cannot list") as denied:
        client.list(paths.PODS, Pod)
    assert denied.value.forbidden
    assert denied.value.is_final


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("86400", 60), ("99999999999", 60), ("9" * 5000, 5), ("\xb2", 5), ("-1", 5)],
)
def test_nobody_can_send_us_away_for_long(header: str, seconds: int) -> None:
    """What is no number of seconds leaves what the body says, which is 5."""
    status = msgspec.json.encode(status_body(429, "TooManyRequests", "slow down", 5))
    headers = Message()
    headers["Retry-After"] = header
    assert error_of(429, status, headers).retry_after_s == seconds


def test_a_server_that_is_away_is_unreachable_and_comes_back(
    server: ApiServer, client: ApiClient
) -> None:
    server.add(node("n1"))
    client.get(paths.node_path("n1"), Node)
    with server.away(), pytest.raises(UnreachableError, match="does not answer"):
        client.get(paths.node_path("n1"), Node)
    assert client.get(paths.node_path("n1"), Node).is_ready


def test_a_lost_answer_is_unreachable_although_the_write_happened(
    server: ApiServer, client: ApiClient
) -> None:
    server.lose_answers(method="POST")
    with pytest.raises(UnreachableError):
        client.create(paths.NODES, node("n1"))
    assert server.get(paths.node_path("n1")) is not None


def test_a_request_that_takes_too_long_is_unreachable(server: ApiServer, client: ApiClient) -> None:
    gate = server.hold(method="GET")
    with pytest.raises(UnreachableError):
        client.with_timeout(0.2).get(paths.NODES, Node)
    gate.open()


def test_names_from_users_cannot_leave_their_place() -> None:
    assert paths.pod_path("a/b", "../nodes") == "/api/v1/namespaces/a%2Fb/pods/..%2Fnodes"


def test_words_of_somebody_in_between_are_not_taken_for_an_answer(
    server: ApiServer, client: ApiClient
) -> None:
    server.put("/api/v1/nodes/n1", {"spec": "log in first"})
    with pytest.raises(UnreachableError, match="no answer of an API server"):
        client.get(paths.node_path("n1"), Node)
    with pytest.raises(UnreachableError, match="no answer of an API server"):
        client.list(paths.NODES, Node)
