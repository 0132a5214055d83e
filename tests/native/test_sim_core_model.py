"""The simulator against a model of it, on a clock that the test moves.

Processes do at random what processes do, some are killed, time passes in leaps; after every step
all accounts must be what the model says, to the byte and the nanosecond.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native.core_programs import Client, compile_program
from tests.simulated import simulated_node

SLICE_NS = 2_000_000
WINDOW_NS = 166_666_667
MEMORY_BYTES = 24 << 30
ENOMEM = 12


@dataclass
class Account:
    """What the model knows of a process."""

    slot: int
    active_ns: int = 0
    horizon_ns: int = 0
    used_bytes: int = 0

    @property
    def left_ns(self) -> int:
        return self.horizon_ns - self.active_ns


@dataclass
class Model:
    """One GPU: whoever has work takes turns of a slice, in the order of slots."""

    time_ns: int
    idle_ns: int
    gone_ns: int = 0
    accounts: dict[int, Account] = field(default_factory=dict)
    turn: int | None = None
    turn_started_ns: int = 0

    def advance(self, now_ns: int) -> None:
        while self.time_ns < now_ns:
            waiting = self._waiting()
            if self.turn is None:
                self.idle_ns += now_ns - self.time_ns
                self.time_ns = now_ns
                return
            account = self._slots()[self.turn]
            until_ns = min(now_ns, self.time_ns + account.left_ns)
            if len(waiting) > 1:
                slices = (self.time_ns - self.turn_started_ns) // SLICE_NS
                until_ns = min(until_ns, self.turn_started_ns + (slices + 1) * SLICE_NS)
            account.active_ns += until_ns - self.time_ns
            self.time_ns = until_ns
            over = (until_ns - self.turn_started_ns) % SLICE_NS == 0 and len(waiting) > 1
            if over or account.left_ns == 0:
                self._pass_turn()

    def submit(self, pid: int, not_before_ns: int, duration_ns: int) -> int:
        account = self.accounts[pid]
        start_ns = max(account.active_ns, min(not_before_ns, account.horizon_ns))
        end_ns = start_ns + duration_ns
        if end_ns > account.horizon_ns:
            account.horizon_ns = end_ns
            if self.turn is None:
                self.turn, self.turn_started_ns = account.slot, self.time_ns
        return end_ns

    def drop(self, pid: int) -> None:
        account = self.accounts[pid]
        account.horizon_ns = account.active_ns
        if self.turn == account.slot:
            self._pass_turn()

    def remove(self, pid: int) -> None:
        self.drop(pid)
        self.gone_ns += self.accounts.pop(pid).active_ns

    @property
    def used_bytes(self) -> int:
        return sum(account.used_bytes for account in self.accounts.values())

    def report(self) -> list[str]:
        shares = sorted((account.slot, pid) for pid, account in self.accounts.items())
        return [
            *map(str, (self.time_ns, self.idle_ns, self.used_bytes, self.gone_ns)),
            *(
                f"{pid}:{account.active_ns}:{account.horizon_ns}:{account.used_bytes}"
                for _, pid in shares
                for account in [self.accounts[pid]]
            ),
        ]

    def _slots(self) -> dict[int, Account]:
        return {account.slot: account for account in self.accounts.values()}

    def _waiting(self) -> list[int]:
        return sorted(slot for slot, account in self._slots().items() if account.left_ns)

    def _pass_turn(self) -> None:
        assert self.turn is not None
        later = [slot for slot in self._waiting() if slot > self.turn]
        self.turn = next(iter(later + self._waiting()), None)
        self.turn_started_ns = self.time_ns


class World:
    """A node on a clock of ours, its processes, and the model of both."""

    def __init__(self, program: Path, env: dict[str, str], clock: mmap.mmap) -> None:
        self._program, self._env, self._clock = program, env, clock
        self._stack = ExitStack()
        self._clients: dict[int, Client] = {}
        self._witness = self._start()
        time_ns, idle_ns, *_ = map(int, self._witness.say("report", 0).split())
        self._base_ns = self.now_ns - time_ns
        self.model = Model(time_ns, idle_ns)

    @property
    def now_ns(self) -> int:
        (now_ns,) = struct.unpack("Q", self._clock[:8])
        return int(now_ns)

    def pass_time(self, duration_ns: int) -> None:
        self._clock[:8] = struct.pack("Q", self.now_ns + duration_ns)

    def settle_model(self) -> None:
        self.model.advance(self.now_ns - self._base_ns)

    def client(self, number: int) -> Client:
        """The client in this place; a new one if it was killed."""
        if number not in self._clients:
            client = self._clients[number] = self._start()
            client.ask("reserve", 0, 0)
            self.model.accounts[client.pid] = Account(client.ask("slot"))
        return self._clients[number]

    def kill(self, number: int) -> None:
        self.check()
        if client := self._clients.pop(number, None):
            client.kill()
            self.model.remove(client.pid)

    def check(self) -> None:
        self.settle_model()
        assert self._witness.say("report", 0).split() == self.model.report()
        self._witness.ask("check", 0)

    def utilization(self) -> int:
        self._witness.say("report", 0)
        return self._witness.ask("utilization", 0)

    def close(self) -> None:
        self._stack.close()

    def _start(self) -> Client:
        client = self._stack.enter_context(Client(self._program, self._env))
        assert client.greeting == "ready"
        return client


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"), "-DTEST_CLOCK")


@contextmanager
def world_of(program: Path) -> Iterator[World]:
    with simulated_node("1xL4") as node:
        path = node.path.with_name("clock")
        path.write_bytes(struct.pack("Q", time.monotonic_ns()))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as clock:
            world = World(program, {**node.env, "ALIQUOT_TEST_CLOCK": os.fspath(path)}, clock)
            try:
                yield world
            finally:
                world.close()


PLACES = st.integers(0, 3)
DURATIONS = st.one_of(
    st.integers(0, 100_000),
    st.integers(0, 20_000_000),
    st.sampled_from([SLICE_NS, SLICE_NS - 1, SLICE_NS + 1, WINDOW_NS, 10 * SLICE_NS]),
    st.integers(0, 30_000_000_000),
)
STEPS = st.one_of(
    st.tuples(st.just("pass"), st.just(0), DURATIONS),
    st.tuples(st.just("pass"), st.just(0), DURATIONS),
    st.tuples(st.just("submit"), PLACES, DURATIONS),
    st.tuples(st.just("submit"), PLACES, DURATIONS),
    st.tuples(st.just("append"), PLACES, DURATIONS),
    st.tuples(st.just("cancel"), PLACES, st.just(0)),
    st.tuples(st.just("reserve"), PLACES, st.integers(0, MEMORY_BYTES // 2)),
    st.tuples(st.just("release"), PLACES, st.integers(0, MEMORY_BYTES // 4)),
    st.tuples(st.just("kill"), PLACES, st.just(0)),
)


def take_step(world: World, memory_bytes: int, verb: str, place: int, amount: int) -> None:
    if verb == "pass":
        world.pass_time(amount)
        return
    if verb == "kill":
        world.kill(place)
        return
    client = world.client(place)
    account = world.model.accounts[client.pid]
    if verb in ("submit", "append"):
        world.settle_model()
        after_ns = account.horizon_ns if verb == "append" else 0
        end_ns = client.submit(0, after_ns, amount)
        assert end_ns == world.model.submit(client.pid, after_ns, amount)
    elif verb == "cancel":
        world.settle_model()
        client.ask("cancel", 0)
        world.model.drop(client.pid)
    elif verb == "reserve":
        fits = world.model.used_bytes + amount <= memory_bytes
        assert client.ask("reserve", 0, amount) == (0 if fits else -ENOMEM)
        account.used_bytes += amount if fits else 0
    elif verb == "release":
        client.ask("release", 0, amount)
        account.used_bytes -= min(amount, account.used_bytes)


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=st.lists(STEPS, min_size=5, max_size=40))
def test_accounts_are_what_the_model_says(program: Path, steps: list[tuple[str, int, int]]) -> None:
    with world_of(program) as world:
        memory_bytes = world.client(0).ask("free", 0)
        for verb, place, amount in steps:
            take_step(world, memory_bytes, verb, place, amount)
            world.check()
        for place in range(4):
            world.kill(place)
        world.check()
        assert world.model.used_bytes == 0


def test_turns_are_exact(program: Path) -> None:
    """Three processes, 5 ms of work each: two slices a turn round, then the rests."""
    with world_of(program) as world:
        clients = [world.client(place) for place in range(3)]
        ends = [client.submit(0, 0, 5_000_000) for client in clients]
        world.pass_time(20_000_000)
        start_ns = world.model.time_ns
        finished = [
            client.ask("wall", 0, end) - start_ns
            for client, end in zip(clients, ends, strict=True)
            if client.ask("reached", 0, end)
        ]
        assert finished == [13_000_000, 14_000_000, 15_000_000]


def test_wall_times_of_work_add_up_to_the_busy_time(program: Path) -> None:
    """Alone, between two events lies exactly the work between them, and idle time never does."""
    with world_of(program) as world:
        client, start_ns = world.client(0), world.model.time_ns
        ends: list[int] = []
        for _ in range(20):
            ends.append(client.submit(0, ends[-1] if ends else 0, 500_000))
        world.pass_time(50_000_000)  # five times as long as all of it takes
        ends.append(client.submit(0, ends[-1], 500_000))
        world.pass_time(50_000_000)
        assert client.ask("reached", 0, ends[-1])
        walls = [client.ask("wall", 0, end) - start_ns for end in ends]
        assert walls == [500_000 * number for number in range(1, 21)] + [50_500_000]


def test_utilization_is_of_the_last_whole_window(program: Path) -> None:
    with world_of(program) as world:
        world.pass_time(WINDOW_NS - world.now_ns % WINDOW_NS)  # to the start of a window
        world.client(0).submit(0, 0, WINDOW_NS // 4)
        world.client(1).submit(0, 0, WINDOW_NS // 4)
        assert world.utilization() == 0, "this window is not over"
        world.pass_time(WINDOW_NS)
        assert world.utilization() in (49, 50)
        world.client(0).submit(0, 0, 100 * WINDOW_NS)
        world.pass_time(100 * WINDOW_NS)
        assert world.utilization() == 100
        world.pass_time(WINDOW_NS)
        assert world.utilization() == 0


def test_an_old_end_is_answered_with_the_oldest_slice_known(program: Path) -> None:
    """More slices than are remembered: the recent ones are exact, the others a lower bound."""
    with world_of(program) as world:
        first, second = world.client(0), world.client(1)
        start_ns = world.model.time_ns
        end_ns = first.submit(0, 0, 5000 * SLICE_NS)
        second.submit(0, 0, 5000 * SLICE_NS)
        world.pass_time(10_000 * SLICE_NS)
        assert first.ask("reached", 0, end_ns)
        assert first.ask("wall", 0, end_ns) - start_ns == 9999 * SLICE_NS
        assert first.ask("wall", 0, end_ns - 4000 * SLICE_NS) - start_ns == 1999 * SLICE_NS
        assert first.ask("wall", 0, 1) - start_ns == 2 * (5000 - 4096) * SLICE_NS
