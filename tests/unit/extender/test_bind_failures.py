"""A bind call that fails at any step, in any way: no GPU is free that may be taken, none is kept
for nobody, and no pod is stuck."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.errors import ApiError, UnreachableError
from aliquot.protocol import names
from scheduler_ext.objects import Pod
from tests.extender_cluster import gpu_node, gpu_pod
from tests.extender_world import World

ERRORS = {
    "conflict": ApiError(409, "Conflict", "the object has been modified"),
    "too many requests": ApiError(429, "TooManyRequests", "not now"),
    "failure": ApiError(500, "InternalError", "etcdserver: leader changed"),
    "server's timeout": ApiError(504, "Timeout", "the request did not complete in time"),
    "no answer": UnreachableError("nobody answered"),
}


@dataclass
class Trouble:
    method: str
    error: Exception
    carried_out: bool = False
    """Whether the server did what was asked before it failed."""


class Unreliable(World):
    """Its next requests meet what a test has written down."""

    def __init__(self) -> None:
        super().__init__([gpu_node("n1", gpus=1)])
        self.troubles: list[Trouble] = []
        self.asked_to_bind: list[tuple[str, Any]] = []
        self.after_plan: Callable[[], None] = lambda: None
        self.add_pod(gpu_pod("p", 100, 60))
        self.add_pod(gpu_pod("other", 100, 60))
        self.deliver(0)
        self.deliver(1)

    def get(self, path: str, kind: type) -> Any:
        return self._meet("get", lambda: super(Unreliable, self).get(path, kind))

    def patch(self, path: str, body: Any) -> Any:
        answer = self._meet("patch", lambda: super(Unreliable, self).patch(path, body))
        if body["metadata"]["annotations"].get(names.PLAN):
            self.after_plan()
        return answer

    def create(self, path: str, body: Any) -> None:
        self.asked_to_bind.append((path, body))
        self._meet("create", lambda: super(Unreliable, self).create(path, body))

    def _meet(self, method: str, carry_out: Callable[[], Any]) -> Any:
        for trouble in self.troubles:
            if trouble.method == method:
                self.troubles.remove(trouble)
                if trouble.carried_out:
                    carry_out()
                raise trouble.error
        return carry_out()

    def is_bound(self, name: str) -> bool:
        return "nodeName" in self.pods[name]["spec"]

    def fits(self, name: str) -> bool:
        return self.schedule(name) is not None


@pytest.fixture
def world() -> Unreliable:
    return Unreliable()


@pytest.mark.parametrize("carried_out", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("method", ["patch", "create"])
def test_whatever_one_step_answers_the_pod_is_bound_in_the_end(world, method, error, carried_out):
    assert world.schedule("p") == "n1"
    world.troubles = [Trouble(method, ERRORS[error], carried_out)]
    said = world.bind("p", "n1")
    assert not world.troubles
    assert said <= world.is_bound("p"), "kube-scheduler is told that it is bound, and it is not"
    assert not (world.is_bound("p") and world.fits("other"))
    world.calm_down()
    if not world.is_bound("p"):
        assert world.replicas[0].state.ledger.is_empty()
        assert world.schedule("p") == "n1"
        assert world.bind("p", "n1")
    world.check_gpus()
    assert not world.fits("other")


@pytest.mark.parametrize("read", [True, False], ids=["can be read", "cannot be read"])
@pytest.mark.parametrize("undo", ["too many requests", "failure", "no answer"])
def test_a_binding_that_may_still_come_keeps_its_gpu_when_it_cannot_be_undone(world, undo, read):
    """The server said that it failed, and carries the request out when we have given up."""
    assert world.schedule("p") == "n1"
    world.troubles = [Trouble("create", ERRORS["server's timeout"])]
    # The first patch writes the plan; only the one that removes it is to fail.
    world.after_plan = lambda: world.troubles.append(Trouble("patch", ERRORS[undo]))
    if not read:
        world.troubles += [Trouble("get", ERRORS["no answer"]) for _ in range(2)]
    assert not world.bind("p", "n1")
    assert not world.fits("other")
    world._bind(*world.asked_to_bind[-1], loudly=True)
    assert not world.fits("other")
    world.calm_down()
    world.check_gpus()
    assert world.is_bound("p")
    assert world.replicas[0].verbs.holdings.is_empty()


def test_a_plan_is_removed_also_when_the_pod_changed_before_the_second_try(world):
    assert world.schedule("p") == "n1"
    world.after_plan = lambda: world.change_pod("p")
    world.troubles = [Trouble("create", ERRORS["conflict"]), Trouble("create", ERRORS["failure"])]
    assert not world.bind("p", "n1")
    assert names.PLAN not in world.pods["p"]["metadata"]["annotations"]
    world.deliver(0)
    assert world.fits("other")


def test_who_loses_the_lease_after_the_plan_takes_it_back(world):
    assert world.schedule("p") == "n1"
    world.after_plan = lambda: setattr(world, "leader", 1)
    assert not world.bind("p", "n1")
    assert names.PLAN not in world.pods["p"]["metadata"]["annotations"]
    assert world.replicas[0].verbs.holdings.is_empty()
    world.deliver(1)
    assert world.fits("other")


def test_who_loses_the_lease_after_the_plan_leaves_the_next_leaders_plan_alone(world):
    world.change_node(gpu_node("n2", gpus=1))
    world.deliver(0)
    world.deliver(1)
    assert world.schedule("p")

    def next_leader() -> None:
        world.after_plan = lambda: None
        world.leader = 1
        world.deliver(1)
        assert world.schedule("p")
        assert world.bind("p", "n2")

    world.after_plan = next_leader
    replica = world.replicas[0]
    assert not world._follow(
        "p", replica.binder.steps("default", "p", "uid-default-p", "n1"), replica
    )
    assert world.pods["p"]["spec"]["nodeName"] == "n2"
    plan, _ = world.assignments(world.pods["p"])
    assert plan.containers["main"][0].uuid == "GPU-n2-0"
    world.calm_down()
    for each in world.replicas:
        assert each.verbs.holdings.is_empty()
        assert each.state.ledger.totals["planned"].pods == 1


def test_a_pod_that_goes_between_filter_and_bind_leaves_nothing(world):
    assert world.schedule("p") == "n1"
    world.delete_pod("p")
    assert not world.bind("p", "n1")
    world.deliver(0)
    assert world.fits("other")
    assert world.bind("other", "n1")
    world.calm_down()
    assert world.replicas[0].verbs.holdings.is_empty()


def test_a_pod_that_goes_between_plan_and_binding_leaves_nothing(world):
    assert world.schedule("p") == "n1"
    world.after_plan = lambda: world.delete_pod("p")
    assert not world.bind("p", "n1")
    world.deliver(0)
    assert world.fits("other")
    world.calm_down()
    assert world.replicas[0].verbs.holdings.is_empty()


def test_a_pod_that_ran_and_finished_while_nobody_watched_keeps_no_gpu(world):
    """Finished pods are not watched: only the API server, asked for it, tells of this one."""
    unheard = world.add_pod(gpu_pod("unheard", 100, 60))
    world.replicas[0].events.clear()
    assert world.schedule("unheard") == "n1"
    assert world.bind("unheard", "n1")
    unheard["status"] = {"phase": "Succeeded"}
    world.replicas[0].events.clear()
    assert not world.fits("other")
    world.pass_time(61.0)
    world.replicas[0].tender.tend()
    assert world.fits("other")


def test_a_fault_of_ours_in_the_middle_of_a_bind_is_settled_later(world):
    assert world.schedule("p") == "n1"
    world.troubles = [Trouble("create", RuntimeError("a fault of ours"))]
    replica = world.replicas[0]
    with pytest.raises(RuntimeError):
        replica.binder.bind("default", "p", "uid-default-p", "n1")
    assert not world.fits("other")
    world.calm_down()
    assert replica.state.ledger.is_empty()
    assert world.schedule("p") == "n1"
    assert world.bind("p", "n1")


def test_a_pod_that_asks_for_zero_is_bound_without_a_plan(world):
    zero = gpu_pod("zero", 0, 0)
    amounts = {names.MEMORY_RESOURCE: "0", names.COMPUTE_RESOURCE: "0"}
    zero["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    world.add_pod(zero)
    world.change_node(gpu_node("plain", gpus=0, agent=False))
    world.deliver(0)
    verbs, asked = world.replicas[0].verbs, msgspec.convert(zero, Pod)
    assert verbs.filter(asked, ["n1", "plain"]).passed == ["n1", "plain"]
    assert verbs.prioritize(asked, ["n1", "plain"]) == [0, 0]
    assert world.bind("zero", "plain")
    assert world.pods["zero"]["spec"]["nodeName"] == "plain"
    assert names.PLAN not in world.pods["zero"]["metadata"]["annotations"]
    world.deliver(0)
    assert world.fits("other")


def test_a_pod_that_left_its_group_keeps_its_gpu_when_that_gives_up(world):
    world.change_node(gpu_node("n1", gpus=2))
    group = {names.GROUP: "g", names.GROUP_SIZE: "2"}
    for name in ("m0", "m1"):
        world.add_pod(gpu_pod(name, 100, 60, annotations=dict(group)))
    world.deliver(0)
    assert world.schedule("m0") == "n1"
    world.pods["m1"]["metadata"]["annotations"].clear()
    world.change_pod("m1")
    world.deliver(0)
    assert world.schedule("m1") == "n1"
    verbs = world.replicas[0].verbs

    def time_is_up() -> None:
        world.pass_time(61.0)
        verbs.expire()
        assert world.fits("p")
        assert not world.fits("other"), "a GPU is free that is being bound"

    world.after_plan = time_is_up
    assert world.bind("m1", "n1")
    world.calm_down()
    assert verbs.companions.is_empty()
