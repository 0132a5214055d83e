"""Who has to go for a more important pod, and whom disruption budgets protect."""

import msgspec
import pytest

from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from scheduler_ext.disruption import Budget, Budgets
from scheduler_ext.objects import Pod
from scheduler_ext.preemption import Victims
from tests.extender_cluster import gpu_node, gpu_pod, uuid_of
from tests.extender_world import World


def budget(name: str, selector: dict | None, allowed: int = 0, **status) -> Budget:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {} if selector is None else {"selector": selector},
            "status": {"disruptionsAllowed": allowed, **status},
        },
        Budget,
    )


def running(name: str, gpu: int, memory: int, priority: int, app: str) -> dict:
    plan = Assignment({"main": (Slice(uuid_of("n1", gpu), memory, 10),)})
    annotations = {names.PLAN: assignment.encode(plan)}
    return gpu_pod(
        name,
        memory,
        10,
        priority=priority,
        node="n1",
        annotations=annotations,
        labels={"app": app},
    )


def preempt(pods: list[dict], budgets: list[Budget], named: list[str], memory: int) -> Victims:
    """The answer for a pod that needs so much on one GPU of `n1`."""
    made = World([gpu_node("n1")], replicas=1)
    for each in pods:
        made.add_pod(each)
    urgent = made.add_pod(gpu_pod("urgent", memory, 10, priority=100))
    made.deliver(0)
    verbs = made.replicas[0].verbs
    verbs.budgets.replace(budgets)
    victims = {"n1": [f"uid-default-{name}" for name in named]}
    return verbs.preempt(msgspec.convert(urgent, Pod), victims)["n1"]


def again(victim: str) -> dict[str, Victims]:
    """The answer for a pod that is tried again after `victim`, on the GPU that it needs, was to go:
    it is `leaving`, `gone` with a share, or with a `whole` GPU."""
    made = World([gpu_node("n1")], replicas=1)
    made.add_pod(running("stays", 1, 160, 5, "other"))
    part = {"whole": Slice(uuid_of("n1", 0), 0, 100)}.get(victim, Slice(uuid_of("n1", 0), 100, 10))
    plan = {names.PLAN: assignment.encode(Assignment({"main": (part,)}))}
    asked = (part.memory_units, part.compute_percent)
    first = gpu_pod("first", *asked, priority=1, node="n1", annotations=plan)
    if victim == "leaving":
        first["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made.add_pod(first)
    urgent = made.add_pod(gpu_pod("urgent", 120, 10, priority=100))
    made.deliver(0)
    if victim != "leaving":
        made.delete_pod("first")
        made.deliver(0)
    urgent["status"] = {"nominatedNodeName": "n1"}
    stays = {"n1": uids("stays")}
    return made.replicas[0].verbs.preempt(msgspec.convert(urgent, Pod), stays)


@pytest.mark.parametrize("victim", ["leaving", "gone", "whole"])
def test_a_pod_whose_victim_has_gone_takes_no_other(victim):
    assert again(victim) == {}


@pytest.mark.parametrize("stuck", [True, False], ids=["never gone", "gone"])
def test_a_pod_that_cannot_use_its_nominated_node_takes_others_in_the_end(stuck):
    """That node died, or was cordoned; kube-scheduler goes on naming it all the same."""
    made = World([gpu_node("n1"), gpu_node("n2", gpus=1)], replicas=1)
    if stuck:
        dying = running("dying", 0, 160, 1, "web")
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        made.add_pod(dying)
        made.add_pod(running("important", 1, 160, 200, "web"))
    plan = Assignment({"main": (Slice(uuid_of("n2", 0), 160, 10),)})
    annotations = {names.PLAN: assignment.encode(plan)}
    made.add_pod(gpu_pod("other", 160, 10, priority=1, node="n2", annotations=annotations))
    urgent = made.add_pod(gpu_pod("urgent", 120, 10, priority=100))
    made.deliver(0)
    urgent["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    replica = made.replicas[0]

    def ask() -> dict[str, Victims]:
        return replica.verbs.preempt(msgspec.convert(urgent, Pod), {"n2": uids("other")})

    assert ask() == {}
    replica.tender.tend()
    made.woken.clear()
    made.pass_time(11.0)
    replica.tender.tend()
    assert made.woken == {"urgent"}, "nobody else would let it be tried again"
    assert ask() == {"n2": Victims(uids("other"))}
    # It has a victim again, and waits for that one.
    assert ask() == {}


def uids(*wanted: str) -> list[str]:
    return [f"uid-default-{name}" for name in wanted]


def test_a_protected_pod_is_spared_for_a_more_important_one_that_is_not():
    pods = [
        running("a", 0, 100, 1, "database"),
        running("b", 1, 100, 5, "batch"),
    ]
    assert preempt(pods, [], [], 120) == Victims(uids("a"))
    protected = [budget("keep", {"matchLabels": {"app": "database"}})]
    assert preempt(pods, protected, [], 120) == Victims(uids("b"))


def test_what_no_budget_allows_is_counted():
    pods = [running("a", 0, 80, 1, "web"), running("b", 0, 80, 2, "web")]
    pods.append(running("c", 1, 160, 200, "other"))
    for allowed, violations in ((0, 2), (1, 1), (2, 0)):
        budgets = [budget("web", {"matchLabels": {"app": "web"}}, allowed)]
        assert preempt(pods, budgets, [], 160) == Victims(uids("a", "b"), violations)
    # kube-scheduler has counted the victims that it named; they use the budget up first.
    budgets = [budget("web", {"matchLabels": {"app": "web"}}, 1)]
    assert preempt(pods, budgets, ["a"], 160) == Victims(uids("a", "b"), 1)


def test_a_pod_that_is_being_evicted_is_counted_already():
    pods = [running("a", 0, 160, 1, "web"), running("c", 1, 160, 200, "other")]
    web = {"matchLabels": {"app": "web"}}
    marked = budget("web", web, 0, disruptedPods={"a": "2026-01-01T00:00:00Z"})
    assert preempt(pods, [marked], [], 160) == Victims(uids("a"), 0)


def _in(key: str, operator: str, *values: str) -> dict:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "front"}}, False),
        (_in("app", "In", "web", "db"), True),
        (_in("app", "In", "db"), False),
        (_in("app", "NotIn", "db"), True),
        (_in("app", "NotIn", "web"), False),
        (_in("tier", "NotIn", "front"), True),
        (_in("app", "Exists"), True),
        (_in("tier", "Exists"), False),
        (_in("app", "DoesNotExist"), False),
        (_in("tier", "DoesNotExist"), True),
    ],
)
def test_budgets_select_pods_as_kubernetes_does(selector, covers):
    pods = [running("a", 0, 160, 1, "web"), running("c", 1, 160, 200, "other")]
    assert preempt(pods, [budget("some", selector)], [], 160) == Victims(uids("a"), int(covers))


def test_budgets_follow_their_changes():
    budgets = Budgets()
    pods = [running("a", 0, 160, 1, "web")]
    made = World([gpu_node("n1")], replicas=1)
    made.add_pod(pods[0])
    made.deliver(0)
    pod = made.replicas[0].state.pods["uid-default-a"]
    for kind, allowed, violated in (
        (ChangeKind.ADDED, 0, True),
        (ChangeKind.MODIFIED, 1, False),
        (ChangeKind.MODIFIED, 0, True),
        (ChangeKind.DELETED, 0, False),
    ):
        budgets.change(Change(kind, budget("web", {}, allowed)))
        assert bool(budgets.allowances().violated_by([pod])) == violated
