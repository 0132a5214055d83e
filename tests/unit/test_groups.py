"""Pods of a group start all or none, and no group keeps another from starting for ever."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.protocol.request import GROUP_SIZE_MOST
from scheduler_ext.groups import Gate, GroupKey, Groups, GroupTimes, Member, Verdict
from scheduler_ext.server import Limits

KEY = GroupKey("default", "train")
TIMES = GroupTimes(hold_s=60.0, barrier_s=20.0)


class Room:
    """A number of slots; a pod takes one."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held: set[str] = set()
        self.groups: Groups[str] = Groups(self.held.remove, TIMES)

    def place_all(self, uids: Sequence[str]) -> dict[str, str] | None:
        if len(self.held) + len(uids) > self.slots:
            return None
        return {uid: f"slot of {uid}" for uid in uids}

    def come(self, uids: str, now_s: float) -> None:
        """The bind calls of these pods come, and their plans are written."""
        tickets = [self.groups.arrive(KEY, uid, now_s) for uid in uids]
        for ticket in tickets:
            assert ticket is not None
            self.groups.plan_written(ticket, now_s)

    def consider(
        self, uid: str, members: Sequence[Member], size: int, now_s: float, key: GroupKey = KEY
    ) -> Verdict[str]:
        verdict = self.groups.consider(key, size, uid, members, self.place_all, now_s)
        self.held.update(verdict.held)
        return verdict


def pods(*names: str, bound: str = "") -> list[Member]:
    return [Member(name, name in bound.split()) for name in names]


def test_a_group_waits_until_all_of_its_pods_exist():
    room = Room(8)
    verdict = room.consider("a", pods("a", "b"), 3, 0.0)
    assert verdict.place is None
    assert verdict.reason == "group train has 2 of 3 pods; it waits for all"
    assert not room.held


def test_a_group_that_does_not_fit_as_a_whole_holds_nothing():
    room = Room(2)
    verdict = room.consider("a", pods("a", "b", "c"), 3, 0.0)
    assert verdict.reason == "group train: 3 pods must start together, and not all fit now"
    assert not room.held


def test_room_is_held_for_the_others_and_they_find_it():
    room = Room(3)
    first = room.consider("b", pods("a", "b", "c"), 3, 0.0)
    assert first.place == "slot of b"
    assert room.held == {"a", "b", "c"} == set(first.held)
    second = room.consider("a", pods("a", "b", "c"), 3, 1.0)
    assert second == Verdict("slot of a")


def test_held_room_is_given_back_when_nobody_comes():
    room = Room(3)
    room.consider("a", pods("a", "b", "c"), 3, 0.0)
    assert room.groups.next_expiry_s() == 60.0
    room.groups.expire(59.9)
    assert room.held
    room.groups.expire(60.0)
    assert not room.held
    assert room.groups.is_empty()
    assert room.groups.arrive(KEY, "a", 61.0) is None


def test_bind_calls_wait_for_each_other_and_then_all_may_bind():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    first = room.groups.arrive(KEY, "a", 5.0)
    assert first is not None
    assert room.groups.look(first, 6.0) is Gate.WAIT
    second = room.groups.arrive(KEY, "b", 24.9)
    assert second is not None
    room.groups.plan_written(first, 25.0)
    assert room.groups.look(first, 25.0) is Gate.PLAN
    room.groups.plan_written(second, 26.0)
    # The gate is open for good, however late somebody looks.
    assert room.groups.look(first, 100.0) is Gate.OPEN
    assert room.groups.look(second, 100.0) is Gate.OPEN
    for uid in "ab":
        assert not room.groups.settle(KEY, uid, 100.0, bound=True)
    assert room.held == {"a", "b"}
    assert room.consider("c", pods("a", "b", "c"), 2, 101.0) == Verdict()


def test_when_one_does_not_come_in_time_all_fail_and_give_back():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    ticket = room.groups.arrive(KEY, "a", 5.0)
    assert ticket is not None
    assert ticket.until_s == 25.0
    assert room.groups.look(ticket, 25.0) is Gate.SHUT
    assert ticket.failure == "not all of its group came to be bound in time"
    assert not room.held
    assert room.groups.arrive(KEY, "b", 26.0) is None
    # A new attempt does not open the gate for calls of the old one.
    room.consider("b", pods("a", "b"), 2, 27.0)
    for uid in "ab":
        room.groups.arrive(KEY, uid, 28.0)
    assert room.groups.look(ticket, 29.0) is Gate.SHUT


def test_a_pod_that_goes_takes_the_attempt_with_it():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    ticket = room.groups.arrive(KEY, "a", 1.0)
    assert ticket is not None
    room.groups.withdraw(KEY, "b", 1.0)
    assert room.groups.look(ticket, 1.0) is Gate.SHUT
    assert ticket.failure == "another pod of its group has gone or lost its place"
    assert not room.held


def test_a_pod_that_replaces_another_needs_only_its_own_room():
    room = Room(1)
    members = pods("a", "b", "new", bound="a b")
    assert room.consider("new", members, 3, 0.0).place == "slot of new"
    assert room.held == {"new"}


def test_pods_beyond_the_group_size_come_after_it():
    room = Room(5)
    members = pods("a", "b", "c")
    room.consider("a", members, 2, 0.0)
    assert room.held == {"a", "b"}
    late = room.consider("c", members, 2, 1.0)
    assert late.reason == "group train: its first 2 pods are being started"
    room.come("ab", 2.0)
    # Once the gate is open, the group is complete: the rest are pods like others.
    assert room.consider("c", members, 2, 3.0) == Verdict()


def test_a_plan_that_cannot_be_written_ends_the_attempt_for_all():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    first, second = (room.groups.arrive(KEY, uid, 1.0) for uid in "ab")
    assert first is not None
    assert second is not None
    room.groups.plan_written(first, 2.0)
    assert not room.groups.settle(KEY, "b", 2.0, bound=False)
    assert room.groups.look(first, 2.0) is Gate.SHUT
    assert first.failure == "another pod of its group could not be planned"
    assert not room.held
    assert not room.groups.settle(KEY, "a", 2.0, bound=False)
    assert room.groups.is_empty()


def test_a_plan_that_is_not_written_in_time_ends_the_attempt_for_all():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    first, second = (room.groups.arrive(KEY, uid, 1.0) for uid in "ab")
    assert first is not None
    assert second is not None
    room.groups.plan_written(first, 2.0)
    room.groups.plan_written(second, 1.0 + TIMES.plan_s)
    assert room.groups.look(first, 8.0) is Gate.SHUT
    assert first.failure == "not all of its group could be planned in time"
    assert not room.held


def test_a_pod_whose_binding_was_refused_keeps_its_room_and_comes_again():
    room = Room(2)
    members = pods("a", "b")
    room.consider("a", members, 2, 0.0)
    room.come("ab", 1.0)
    assert room.groups.settle(KEY, "b", 2.0, bound=False)
    assert not room.groups.settle(KEY, "a", 3.0, bound=True)
    assert room.held == {"a", "b"}
    # Whoever lists the members has not heard that a is bound.
    assert room.consider("b", members, 2, 4.0) == Verdict("slot of b")
    room.come("b", 5.0)
    assert not room.groups.settle(KEY, "b", 6.0, bound=True)
    assert room.consider("c", pods("a", "b", "c", bound="a b"), 2, 7.0) == Verdict()


def test_a_pod_whose_binding_was_refused_may_come_again_before_the_others_are_bound():
    room = Room(3)
    members = pods("a", "b", "c")
    room.consider("a", members, 3, 0.0)
    room.come("abc", 1.0)
    for uid in "bc":
        assert room.groups.settle(KEY, uid, 2.0, bound=False)
    # Room is looked for anew, which finds at least what was held.
    room.held -= {"b", "c"}
    assert set(room.consider("c", members, 3, 2.0).held) == {"b", "c"}
    room.groups.settle(KEY, "a", 3.0, bound=True)
    room.come("bc", 4.0)
    for uid in "bc":
        room.groups.settle(KEY, uid, 5.0, bound=True)
    assert room.held == {"a", "b", "c"}


def test_the_room_of_a_refused_binding_is_given_back_when_nobody_comes_for_it():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    room.come("ab", 1.0)
    room.groups.settle(KEY, "a", 2.0, bound=True)
    assert room.groups.settle(KEY, "b", 2.0, bound=False)
    room.groups.expire(2.0 + TIMES.hold_s)
    assert room.held == {"a"}


def test_the_room_of_a_refused_binding_goes_with_its_pod():
    room = Room(3)
    room.consider("a", pods("a", "b", "c"), 3, 0.0)
    room.come("abc", 1.0)
    assert room.groups.settle(KEY, "b", 2.0, bound=False)
    room.groups.withdraw(KEY, "b", 3.0)
    assert room.held == {"a", "c"}


def test_what_was_bound_is_forgotten_when_it_is_seen_or_gone():
    room = Room(2)
    room.consider("a", pods("a", "b"), 2, 0.0)
    room.come("ab", 1.0)
    for uid in "ab":
        room.groups.settle(KEY, uid, 1.0, bound=True)
    assert not room.groups.is_empty()
    room.groups.withdraw(KEY, "a", 1.0)
    room.consider("b", pods("b", bound="b"), 2, 2.0)
    assert room.groups.is_empty()


def test_a_stranger_has_no_business_at_the_barrier():
    room = Room(2)
    assert room.groups.arrive(KEY, "a", 0.0) is None
    room.consider("a", pods("a", "b"), 2, 0.0)
    assert room.groups.arrive(KEY, "x", 0.0) is None
    room.groups.withdraw(KEY, "x", 0.0)
    assert room.held == {"a", "b"}


class Simulation:
    """kube-scheduler and the extender over slots, with every step in any order."""

    def __init__(self, slots: int, sizes: Sequence[int]) -> None:
        self.room = Room(slots)
        self.now_s = 0.0
        self.keys = [GroupKey("default", f"group-{number}") for number in range(len(sizes))]
        self.sizes = sizes
        self.bound: set[str] = set()
        self.tickets: dict[str, object] = {}

    def uids(self, group: int) -> list[str]:
        return [f"{group}/{number}" for number in range(self.sizes[group])]

    def members(self, group: int) -> list[Member]:
        return [Member(uid, uid in self.bound) for uid in self.uids(group)]

    def schedule(self, group: int, number: int) -> None:
        uid = self.uids(group)[number % self.sizes[group]]
        if uid in self.bound or uid in self.tickets:
            return
        key, size = self.keys[group], self.sizes[group]
        verdict = self.room.consider(uid, self.members(group), size, self.now_s, key)
        if verdict.place is not None:
            self.tickets[uid] = self.room.groups.arrive(key, uid, self.now_s)

    def look(self) -> None:
        for ticket in list(self.tickets.values()):
            gate = self.room.groups.look(ticket, self.now_s) if ticket else Gate.SHUT
            if gate is Gate.PLAN:
                self.room.groups.plan_written(ticket, self.now_s)
        for uid, ticket in list(self.tickets.items()):
            gate = self.room.groups.look(ticket, self.now_s) if ticket else Gate.SHUT
            if gate is Gate.WAIT:
                continue
            del self.tickets[uid]
            if gate is Gate.OPEN:
                self.bound.add(uid)
                key = self.keys[int(uid.split("/")[0])]
                self.room.groups.settle(key, uid, self.now_s, bound=True)

    def check(self) -> None:
        assert len(self.room.held) <= self.room.slots
        assert self.bound <= self.room.held
        for group in range(len(self.sizes)):
            started = self.bound & set(self.uids(group))
            assert not started or started == set(self.uids(group))
            held = self.room.held & set(self.uids(group))
            assert not held or held == set(self.uids(group))


steps = st.lists(
    st.tuples(st.sampled_from(["schedule", "look", "wait", "withdraw"]), st.integers(0, 11)),
    max_size=60,
)


@settings(max_examples=300)
@given(slots=st.integers(1, 8), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), do=steps)
def test_whatever_happens_groups_are_whole_and_in_the_end_those_that_fit_run(slots, sizes, do):
    world = Simulation(slots, sizes)
    for step, number in do:
        group = number % len(sizes)
        if step == "schedule":
            world.schedule(group, number // len(sizes))
        elif step == "look":
            world.look()
        elif step == "wait":
            world.now_s += 3.0 * number
        else:
            uid = world.uids(group)[number % sizes[group]]
            if uid not in world.bound:
                world.room.groups.withdraw(world.keys[group], uid, world.now_s)
        # Everybody who may bind does so before anything is asserted: a gate opens for all.
        world.look()
        world.check()
    # From here on every pod is tried in turn, as kube-scheduler does with woken pods.
    for _ in range(len(sizes) + 1):
        world.now_s += TIMES.hold_s + TIMES.barrier_s
        world.look()
        for group, size in enumerate(sizes):
            for number in range(size):
                world.schedule(group, number)
                world.look()
                world.check()
    running = {uid.split("/")[0] for uid in world.bound}
    free = slots - len(world.bound)
    for group, size in enumerate(sizes):
        assert str(group) in running or size > free
    # Nothing is held for anybody who does not run.
    world.room.groups.expire(world.now_s + TIMES.hold_s)
    assert world.room.held == world.bound


@pytest.mark.parametrize("turns", [(0, 1), (1, 0)])
def test_two_groups_that_want_the_same_room_start_one_after_the_other(turns):
    world = Simulation(4, [3, 3])
    for number in range(3):
        for group in turns:
            world.schedule(group, number)
    world.look()
    assert world.bound == set(world.uids(turns[0]))
    world.check()


def test_the_largest_group_finds_a_connection_for_each_of_its_bind_calls():
    """They wait for each other; kube-scheduler asks about other pods meanwhile."""
    assert Limits().connections >= 2 * GROUP_SIZE_MOST
