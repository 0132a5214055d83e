"""One leader at a time, whatever the clocks and the server do."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from aliquot.kubernetes.lease import LeaderElection, LeaseTimes
from aliquot.kubernetes.paths import lease_path
from simcluster.apiserver import ApiServer, RejectedError

PATH = lease_path("aliquot", "extender")
FAST = LeaseTimes(lease_s=1.5, renew_s=1.0, retry_s=0.05)


class Clock:
    """One that only tests move."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Replica:
    def __init__(
        self,
        server: ApiServer,
        name: str,
        times: LeaseTimes = FAST,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.log: list[str] = []
        more = {"clock": clock} if clock else {}
        self.election = LeaderElection(
            server.client(),
            "aliquot",
            "extender",
            name,
            lambda: self.log.append("started"),
            lambda: self.log.append("stopped"),
            times=times,
            **more,
        )

    @property
    def leads(self) -> bool:
        return self.election.is_leader


@contextmanager
def running(*replicas: Replica) -> Iterator[None]:
    with ExitStack() as stack:
        for each in replicas:
            each.election.start()
            stack.callback(each.election.stop, 60)
        yield


def holder(server: ApiServer) -> str:
    lease = server.get(PATH)
    return lease["spec"]["holderIdentity"] if lease else ""


def test_one_of_several_leads(server: ApiServer) -> None:
    replicas = [Replica(server, f"r{number}") for number in range(3)]
    with running(*replicas):
        server.wait_for(lambda: any(each.log for each in replicas))
        assert sum(each.leads for each in replicas) <= 1
        server.wait_for(lambda: len({each.election.holder for each in replicas} - {""}) == 1)
    assert server.get(PATH)["spec"]["holderIdentity"] == ""


def test_stop_tells_the_end_and_hands_over_at_once(server: ApiServer) -> None:
    # So slow that nobody would take over by waiting.
    slow = LeaseTimes(lease_s=3600, renew_s=1800, retry_s=0.05)
    first, second = Replica(server, "first", slow), Replica(server, "second", slow)
    with running(first):
        server.wait_for(lambda: first.log == ["started"])
        with running(second):
            server.wait_for(lambda: second.election.holder == "first")
            first.election.stop(60)
            assert first.log == ["started", "stopped"]
            assert not first.leads
            server.wait_for(lambda: second.log == ["started"])
            assert server.get(PATH)["spec"]["leaseTransitions"] >= 2


def test_a_dead_leader_is_followed_after_the_lease_by_the_observers_clock(
    server: ApiServer,
) -> None:
    clock = Clock()
    times = LeaseTimes(lease_s=15, renew_s=10, retry_s=0.02)
    # Its clock is an hour ahead; that must not matter.
    server.put(
        PATH,
        {
            "spec": {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 15,
                "renewTime": "2099-01-01T00:00:00.000000Z",
            }
        },
    )
    replica = Replica(server, "heir", times, clock)
    with running(replica):
        server.wait_for(lambda: replica.election.holder == "dead")
        tries = len(server.asked("GET"))
        clock.now_s += 14.9
        server.wait_for(lambda: len(server.asked("GET")) > tries + 3)
        assert holder(server) == "dead"
        clock.now_s += 0.2
        server.wait_for(lambda: replica.log == ["started"])
    assert replica.log == ["started", "stopped"]


def test_a_living_leader_with_a_clock_from_last_year_is_not_deposed(server: ApiServer) -> None:
    clock = Clock()
    old = {"holderIdentity": "slow-clock", "leaseDurationSeconds": 15}
    server.put(PATH, {"spec": old | {"renewTime": "2020-01-01T00:00:00.000000Z"}})
    replica = Replica(server, "other", LeaseTimes(15, 10, 0.02), clock)
    with running(replica):
        for second in range(5):
            server.merge(PATH, {"spec": {"renewTime": f"2020-01-01T00:00:{second:02}.000000Z"}})
            tries = len(server.asked("GET"))
            server.wait_for(lambda: len(server.asked("GET")) > tries + 2)  # noqa: B023
            clock.now_s += 10
        assert holder(server) == "slow-clock"
    assert replica.log == []


def test_a_leader_that_cannot_renew_stops_before_another_may_begin(server: ApiServer) -> None:
    clock = Clock()
    times = LeaseTimes(lease_s=15, renew_s=10, retry_s=0.02)
    leader = Replica(server, "leader", times, clock)
    with running(leader):
        server.wait_for(lambda: leader.leads and leader.log)
        server.fail(500, method="PUT", times=float("inf"))
        tries = len(server.asked("PUT"))
        server.wait_for(lambda: len(server.asked("PUT")) > tries + 2)
        assert leader.leads
        clock.now_s += 10
        # By the clock alone, even if its thread never ran again.
        assert not leader.leads
        server.wait_for(lambda: leader.log == ["started", "stopped"])
        server.clear_faults()
        server.wait_for(lambda: leader.log == ["started", "stopped", "started"])


def test_a_term_counts_from_before_the_request(server: ApiServer) -> None:
    clock = Clock()
    gate = server.hold(method="POST")
    leader = Replica(server, "leader", LeaseTimes(150, 100, 0.02), clock)
    with running(leader):
        assert gate.reached.wait(60)
        clock.now_s += 101
        server.fail(500, method="GET", times=float("inf"))
        gate.open()
        server.wait_for(lambda: holder(server) == "leader")
        tries = len(server.asked("GET"))
        server.wait_for(lambda: len(server.asked("GET")) > tries + 2)
        assert not leader.leads
        assert leader.log == []
        server.clear_faults()


def test_a_deleted_lease_is_not_taken_from_a_leader_who_may_not_know(server: ApiServer) -> None:
    clock = Clock()
    server.put(PATH, {"spec": {"holderIdentity": "leader", "leaseDurationSeconds": 15}})
    replica = Replica(server, "other", LeaseTimes(15, 10, 0.02), clock)
    with running(replica):
        server.wait_for(lambda: replica.election.holder == "leader")
        server.remove(PATH)
        tries = len(server.asked("GET"))
        server.wait_for(lambda: len(server.asked("GET")) > tries + 3)
        assert server.get(PATH) is None
        clock.now_s += 15
        server.wait_for(lambda: replica.log == ["started"])


def test_two_that_create_at_once_do_not_both_lead(server: ApiServer) -> None:
    both = server.hold(method="POST", times=2)
    slow = LeaseTimes(lease_s=3600, renew_s=1800, retry_s=0.05)
    replicas = [Replica(server, "a", slow), Replica(server, "b", slow)]
    with running(*replicas):
        server.wait_for(lambda: len(server.asked("POST")) == 2)
        both.open()
        server.wait_for(lambda: [each.log for each in replicas].count(["started"]) == 1)
        server.wait_for(lambda: {each.election.holder for each in replicas} == {holder(server)})
        assert sum(each.leads for each in replicas) == 1


def test_a_callback_that_raises_does_not_end_the_election(server: ApiServer) -> None:
    stopped = threading.Event()

    def fail() -> None:
        raise RuntimeError("as the test wants it")

    election = LeaderElection(
        server.client(), "aliquot", "extender", "r", fail, stopped.set, times=FAST
    )
    election.start()
    server.wait_for(lambda: holder(server) == "r")
    election.stop(60)
    assert stopped.is_set()


@pytest.mark.parametrize(("lease_s", "renew_s", "retry_s"), [(10, 10, 1), (15, 10, 10)])
def test_times_that_allow_two_leaders_are_refused(
    lease_s: float, renew_s: float, retry_s: float
) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < lease_s"):
        LeaseTimes(lease_s, renew_s, retry_s)


def test_under_faults_there_are_never_two(server: ApiServer) -> None:
    """Replicas whose clocks run on their own; one test clock moves them all forward."""
    clock = Clock()
    times = LeaseTimes(lease_s=15, renew_s=10, retry_s=0.01)
    replicas = [Replica(server, f"r{n}", times, clock) for n in range(3)]
    led: set[str] = set()
    with running(*replicas):
        for round_number in itertools.count():
            leading = [each.election.identity for each in replicas if each.leads]
            assert len(leading) <= 1, leading
            led.update(leading)
            if leading:
                # Its own writes fail until it has to give up, and another begins.
                server.admission = _refuse_writes_of(leading[0])
            seen = len(server.asked("GET"))
            server.wait_for(lambda: len(server.asked("GET")) > seen + 3)  # noqa: B023
            clock.now_s += 2
            if len(led) == 3 or round_number > 400:
                break
        server.admission = None
    assert len(led) == 3


def _refuse_writes_of(name: str) -> Callable[..., None]:
    def hook(operation: str, old: object, new: dict[str, dict[str, str]] | None) -> None:
        if new and new["spec"].get("holderIdentity") == name:
            raise RejectedError("as the test wants it")

    return hook
