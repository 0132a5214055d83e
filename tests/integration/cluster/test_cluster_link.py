"""What the agent tells the API server: once, later if it must, and never in its caller's way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from aliquot.kubernetes.errors import UnreachableError
from aliquot.kubernetes.paths import NODES, events_path, node_path, pod_path
from aliquot.protocol import assignment, inventory, names, resize
from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.resize import Amounts, ResizeRequest
from deviceplugin.booking.errors import Unsettled
from deviceplugin.booking.sources import PodView
from deviceplugin.cluster.inventory import clear_inventory, inventory_of
from deviceplugin.cluster.link import ClusterLink, Node
from deviceplugin.gpus.hardware import Gpu, Hardware
from simcluster.apiserver import ApiServer, mirror, node, pod
from simcluster.apiserver.operations import RefusalError

GIB = 1 << 30
WEB = pod_path("team", "web")
NODE = node_path("n1")
A100 = Gpu("GPU-a", 0, "A100-80G", 80 * GIB)
HARDWARE = Hardware((A100,), driver="570.1")


class RefusedError(Exception):
    pass


@dataclass
class Agent:
    """The rest of the agent, as the link sees it."""

    actual: dict[str, Assignment] = field(default_factory=dict)
    seen: list[PodView] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    resizes: list[tuple[str, str, Amounts]] = field(default_factory=list)
    refusal: str = ""
    is_new: bool = False
    """It cannot say yet who has what."""

    def resize(self, pod: PodView, container: str, wanted: Amounts) -> Any:
        self.resizes.append((pod.uid, container, wanted))
        if self.is_new:
            raise Unsettled
        if self.refusal:
            raise RefusedError(self.refusal)
        return Amounts(wanted.memory_units or 16, wanted.compute_percent or 30)

    def node(self) -> Node:
        return Node(
            name="n1",
            unit_mib=256,
            on_pod=self.seen.append,
            on_gone=lambda view: self.gone.append(view.name),
            actual_of=lambda pod: self.actual.get(pod.uid),
            resize=self.resize,
            refusals=(RefusedError,),
        )


@contextmanager
def linked(server: ApiServer, agent: Agent) -> Iterator[ClusterLink]:
    link = ClusterLink(server.client(), agent.node())
    link.start()
    try:
        yield link
    finally:
        link.stop()


def found_inventory(hardware: Hardware = HARDWARE) -> inventory.NodeInventory:
    return inventory_of(hardware, lambda _: 320, 256)


def annotation(server: ApiServer, path: str, name: str) -> str | None:
    stored = server.get(path)
    return (stored or {"metadata": {}})["metadata"].get("annotations", {}).get(name)


def add_web(server: ApiServer, annotations: dict[str, str] | None = None) -> str:
    made = pod(
        "web", "team", node="n1", memory=16, compute=30, annotations=annotations, phase="Running"
    )
    uid: str = server.add(made)["metadata"]["uid"]
    return uid


def test_the_inventory_is_written_when_it_changes_and_only_then(server: ApiServer) -> None:
    with linked(server, Agent()) as link:
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
        for _ in range(3):
            link.publish_inventory(found_inventory())
        worse = Hardware((Gpu("GPU-a", 0, "A100-80G", 80 * GIB, unusable="Xid 79"),))
        link.publish_inventory(found_inventory(worse))
        server.wait_for(lambda: "Xid 79" in (annotation(server, NODE, names.INVENTORY) or ""))
    assert len(server.asked("PATCH", "/nodes/n1$")) == 2
    stored = inventory.decode(annotation(server, NODE, names.INVENTORY) or "")
    assert stored == found_inventory(worse)
    assert stored.gpus[0].memory_mib == 80 * 1024


def test_a_node_that_registers_anew_gets_its_inventory_again(server: ApiServer) -> None:
    with linked(server, Agent()) as link:
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
        server.remove(NODE)
        server.add(node("n1"))
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))


def test_an_inventory_that_stands_already_is_not_written(server: ApiServer) -> None:
    server.merge(
        NODE,
        {"metadata": {"annotations": {names.INVENTORY: inventory.encode(found_inventory())}}},
    )
    with linked(server, Agent()) as link:
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: server.watches(NODES))
    assert server.asked("PATCH") == []


def test_what_cannot_be_written_now_is_written_later(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    agent.actual[uid] = Assignment({"main": (Slice("GPU-a", 16, 30),)})
    server.fail(500, method="PATCH", times=2)
    with server.away():
        link = ClusterLink(server.client(), agent.node())
        link.start()
        link.publish_inventory(found_inventory())
        link.refresh()
    server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
    server.wait_for(lambda: annotation(server, WEB, names.ACTUAL))
    link.stop()


def test_actual_is_written_once_for_each_change(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    with linked(server, agent) as link:
        server.wait_for(lambda: agent.seen)
        for units in (16, 24):
            agent.actual[uid] = Assignment({"main": (Slice("GPU-a", units, 30),)})
            wanted = assignment.encode(agent.actual[uid])
            for _ in range(3):
                link.refresh()
            server.wait_for(lambda: annotation(server, WEB, names.ACTUAL) == wanted)  # noqa: B023
            server.wait_for(
                lambda: agent.seen[-1].actual == agent.actual[uid],
            )
            link.refresh()
    assert len(server.asked("PATCH", "/pods/web$")) == 2


def test_pods_are_looked_at_once_more_when_all_is_compared(server: ApiServer) -> None:
    agent = Agent()
    add_web(server)
    with linked(server, agent) as link:
        server.wait_for(lambda: len(agent.seen) == 1)
        link.refresh()
        server.wait_for(lambda: [each.name for each in agent.seen] == ["web", "web"])


def test_actual_of_a_pod_that_is_gone_is_dropped(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    agent.actual[uid] = Assignment({"main": (Slice("GPU-a", 16, 30),)})
    gate = server.hold(method="PATCH", path="/pods/web$")
    with linked(server, agent) as link:
        assert gate.reached.wait(60)
        server.remove(WEB)
        successor = server.add(pod("web", "team", node="n1"))["metadata"]["uid"]
        gate.open()
        server.wait_for(lambda: agent.gone == ["web"])
        server.wait_for(lambda: link.pods.by_uid(successor))
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
    assert annotation(server, WEB, names.ACTUAL) is None


def test_an_annotation_that_the_server_refuses_keeps_back_no_other(server: ApiServer) -> None:
    """All annotations of a pod have 256 KiB together, which its user can use up."""

    def admit(operation: str, old: Any, new: Any) -> Any:
        if names.RESIZED in new["metadata"].get("annotations", {}):
            raise RefusalError(422, "Invalid", "metadata.annotations: Too long")
        return new

    agent = Agent(is_new=True)
    uid = add_web(server, {names.RESIZE: "lots"})
    server.admission = admit
    with linked(server, agent) as link:
        server.wait_for(lambda: server.asked("PATCH"))
        agent.actual[uid] = Assignment({"main": (Slice("GPU-a", 16, 30),)})
        link.refresh()
        server.wait_for(lambda: annotation(server, WEB, names.ACTUAL))
        server.merge(WEB, {"metadata": {"labels": {"tier": "gold"}}})
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
    refused = [
        each
        for each in server.asked("PATCH", "/pods/web$")
        if names.RESIZED in each.body["metadata"]["annotations"]
    ]
    assert len(refused) == 1


def test_other_gpus_than_planned_are_told_to_the_user(server: ApiServer) -> None:
    agent = Agent()
    plan = Assignment({"main": (Slice("GPU-b", 16, 30),)})
    uid = add_web(server, {names.PLAN: assignment.encode(plan)})
    agent.actual[uid] = Assignment({"main": (Slice("GPU-a", 16, 30),)})
    with linked(server, agent) as link:
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: server.objects(events_path("team")))
    (event,) = server.objects(events_path("team"))
    assert event["reason"] == "NotAsPlanned"
    assert "given GPU 0 and not GPU-b" in event["message"]
    assert event["involvedObject"]["uid"] == uid


def test_a_resize_is_carried_out_and_answered_once(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    with linked(server, agent) as link:
        server.wait_for(lambda: agent.seen)
        wish = ResizeRequest("r1", {"main": Amounts(24, None)})
        server.merge(WEB, {"metadata": {"annotations": {names.RESIZE: resize.encode(wish)}}})
        text = server.wait_for(lambda: annotation(server, WEB, names.RESIZED))
        server.merge(WEB, {"metadata": {"annotations": {names.POLICY: "fixed"}}})
        server.wait_for(lambda: agent.seen[-1].request and agent.seen[-1].request.policy)
        assert link.events.flush(60)
    answer = resize.decode_answer(text or "")
    assert (answer.id, answer.refusal) == ("r1", "")
    assert answer.containers == {"main": Amounts(24, 30)}
    assert agent.resizes == [(uid, "main", Amounts(24, None))]
    (event,) = server.objects(events_path("team"))
    assert (event["reason"], event["type"]) == ("Resized", "Normal")


def test_a_resize_that_comes_too_early_is_answered_later(server: ApiServer) -> None:
    agent = Agent(is_new=True)
    wish = ResizeRequest("r1", {"main": Amounts(24, None)})
    add_web(server, {names.RESIZE: resize.encode(wish)})
    with linked(server, agent) as link:
        server.wait_for(lambda: agent.resizes)
        agent.is_new = False
        assert server.asked("PATCH") == []
        link.refresh()
        text = server.wait_for(lambda: annotation(server, WEB, names.RESIZED))
    assert resize.decode_answer(text or "").containers == {"main": Amounts(24, 30)}
    assert len(agent.resizes) == 2


def test_a_refused_resize_says_what_is_free(server: ApiServer) -> None:
    agent = Agent(refusal="GPU 0 has 4 units free; ask for 20 at most")
    wish = ResizeRequest("r1", {"main": Amounts(24, None)})
    add_web(server, {names.RESIZE: resize.encode(wish)})
    with linked(server, agent) as link:
        text = server.wait_for(lambda: annotation(server, WEB, names.RESIZED))
        assert link.events.flush(60)
    assert resize.decode_answer(text or "").refusal == (
        "container main: GPU 0 has 4 units free; ask for 20 at most"
    )
    (event,) = server.objects(events_path("team"))
    assert event["type"] == "Warning"
    assert "4 units free" in event["message"]


def test_after_a_restart_an_answered_resize_is_not_repeated(server: ApiServer) -> None:
    wish = ResizeRequest("r1", {"main": Amounts(24, None)})
    add_web(server, {names.RESIZE: resize.encode(wish)})
    with linked(server, Agent()):
        server.wait_for(lambda: annotation(server, WEB, names.RESIZED))
    second = Agent()
    with linked(server, second):
        server.wait_for(lambda: second.seen)
        again = ResizeRequest("r2", {"main": Amounts(24, None)})
        server.merge(WEB, {"metadata": {"annotations": {names.RESIZE: resize.encode(again)}}})
        server.wait_for(lambda: "r2" in (annotation(server, WEB, names.RESIZED) or ""))
    assert len(second.resizes) == 1


def test_an_eviction_waits_for_the_disruption_budget(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    server.fail(429, "TooManyRequests", "the budget needs 1", path="eviction$", times=2)
    with linked(server, agent) as link:
        server.wait_for(lambda: link.pods.by_uid(uid))
        link.evict(uid, "container main holds 20 GiB, its cap is 4 GiB")
        server.wait_for(lambda: server.get(WEB)["metadata"].get("deletionTimestamp"))
        assert link.events.flush(60)
    assert len(server.asked("POST", "eviction$")) == 3
    assert server.asked("POST", "eviction$")[0].body["deleteOptions"] == {
        "preconditions": {"uid": uid}
    }
    assert "its cap is 4 GiB" in server.objects(events_path("team"))[0]["message"]


@pytest.mark.parametrize("is_mirror", [False, True])
def test_a_pod_that_calls_itself_a_mirror_is_evicted_all_the_same(
    server: ApiServer, is_mirror: bool
) -> None:
    made = mirror("web", "f" * 32)
    if not is_mirror:
        del made["metadata"]["ownerReferences"]
    uid = server.add(made)["metadata"]["uid"]
    with linked(server, Agent()) as link:
        server.wait_for(lambda: link.pods.is_synced)
        link.evict(uid, "over its cap")
        server.wait_for(lambda: server.get(WEB)["metadata"].get("deletionTimestamp"))
        assert link.events.flush(60)
    assert "over its cap" in server.objects(events_path("team"))[0]["message"]


def test_a_pod_that_names_itself_after_another_one_does_not_shield_it(server: ApiServer) -> None:
    """Neither from its eviction, nor from what is told of it, nor from its resizes."""
    agent = Agent()
    uid = add_web(server)
    wish = resize.encode(ResizeRequest("r1", {"main": Amounts(1, None)}))
    thief = mirror("thief", uid)
    thief["metadata"]["annotations"][names.RESIZE] = wish
    with linked(server, agent) as link:
        server.wait_for(lambda: agent.seen)
        server.add(thief)
        server.wait_for(lambda: annotation(server, pod_path("team", "thief"), names.RESIZED))
        server.merge(WEB, {"metadata": {"annotations": {names.RESIZE: wish}}})
        server.wait_for(lambda: annotation(server, WEB, names.RESIZED))
        server.remove(pod_path("team", "thief"))
        server.wait_for(lambda: agent.gone)
        assert link.name_of(uid) == ("team", "web")
        link.evict(uid, "over its cap")
        server.wait_for(lambda: server.get(WEB)["metadata"].get("deletionTimestamp"))


def test_what_waits_for_a_pod_to_be_shown_is_bounded(server: ApiServer) -> None:
    with linked(server, Agent()) as link:
        server.wait_for(lambda: link.pods.is_synced)
        for number in range(100):
            link.tell_pod("a-pod-to-come", "GpuLimitBreached", f"breach {number}")
        made = pod("web", "team", node="n1", phase="Running")
        made["metadata"]["uid"] = "a-pod-to-come"
        server.add(made)
        server.wait_for(lambda: server.objects(events_path("team")))
        assert link.events.flush(60)
    told = [each["message"] for each in server.objects(events_path("team"))]
    assert told == [f"breach {number}" for number in range(84, 100)]


def test_an_eviction_never_hits_a_successor(server: ApiServer) -> None:
    agent = Agent()
    uid = add_web(server)
    with linked(server, agent) as link:
        server.wait_for(lambda: link.pods.by_uid(uid))
        gate = server.hold(path="eviction$")
        link.evict(uid, "a breach")
        assert gate.reached.wait(60)
        server.remove(WEB)
        add_web(server)
        gate.open()
        link.publish_inventory(found_inventory())
        server.wait_for(lambda: annotation(server, NODE, names.INVENTORY))
    assert "deletionTimestamp" not in server.get(WEB)["metadata"]


def test_faults_of_gpus_are_events_of_the_node(server: ApiServer) -> None:
    bad = Hardware((Gpu("GPU-a", 0, "A100-80G", 80 * GIB, unusable="Xid 79"),))
    with linked(server, Agent()) as link:
        for each in (HARDWARE, bad, bad, HARDWARE):
            link.publish_inventory(found_inventory(each))
        assert link.events.flush(60)
    events = server.objects(events_path("default"))
    assert {(each["reason"], each["count"]) for each in events} == {
        ("GpuUnusable", 1),
        ("GpuRecovered", 1),
    }


def test_uninstalling_clears_the_annotation(server: ApiServer) -> None:
    client = server.client()
    server.merge(NODE, {"metadata": {"annotations": {names.INVENTORY: "{}", "other": "stays"}}})
    assert clear_inventory(client, "n1")
    assert server.get(NODE)["metadata"]["annotations"] == {"other": "stays"}
    assert not clear_inventory(client, "n2")
    with server.away(), pytest.raises(UnreachableError):
        clear_inventory(client, "n1")
