"""Whatever a program allocates and frees in whatever order, account and GPU say the same."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capped import BLOCK, GIB, MIB, Share
from tests.native.cuda_client import OUT, Client
from tests.native.road_programs import LINK, build
from tests.native.test_shim_memory import OUT_OF_MEMORY, WAYS, allocation
from tests.simulated import simulated_node

# Kinds of memory that are charged exactly what the GPU loses, whatever their size.
EXACT = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemCreate")

sizes = st.one_of(
    st.integers(4096, MIB - 1),
    st.integers(MIB, 8 * MIB),
    st.sampled_from(
        [4096, MIB - 4096, MIB, BLOCK - 4096, BLOCK, BLOCK + 4096, 64 * MIB, 600 * MIB]
    ),
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(EXACT), sizes),
        st.tuples(st.just("give"), st.integers(0, 1000), st.none()),
        st.tuples(st.just("map"), st.integers(0, 1000), st.none()),
        st.tuples(st.just("context"), st.none(), st.none()),
        st.tuples(st.just("end context"), st.none(), st.none()),
    ),
    min_size=5,
    max_size=40,
)


@contextmanager
def capped_client() -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as folder, simulated_node("1xA100-80G") as node:
        share = Share.make(node, Path(folder) / "run", {0: 2 * GIB})
        with Client(share) as client:
            client.made("cuInit", 0)
            yield client


class Program:
    """What the client has, so that only valid frees are asked of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.contexts: list[int] = []
        self.held: list[tuple[str, int, int]] = []
        """How it was taken, its address or handle, and the context it ends with."""
        self.mapped: list[int] = []

    def step(self, action: str, which: Any, size: int | None) -> None:
        if action == "context":
            result, context = self.client.call("cuCtxCreate_v2", OUT, 0, 0)
            assert result in (0, OUT_OF_MEMORY)
            if result == 0:
                self.contexts.append(context)
        elif action == "end context":
            self.end_context()
        elif not self.contexts:
            return
        elif action == "take":
            self.take(which, size or 0)
        elif action == "give" and self.held:
            self.give(which % len(self.held))
        elif action == "map" and self.held:
            self.map(which % len(self.held))

    def take(self, way: str, size: int) -> None:
        size = (size + BLOCK - 1) // BLOCK * BLOCK if way == "cuMemCreate" else size
        result, token = WAYS[way].take(self.client, size)
        assert result in (0, OUT_OF_MEMORY)
        if result == 0:
            self.held.append((way, token, self.contexts[-1]))

    def give(self, place: int) -> None:
        way, token, _ = self.held.pop(place)
        WAYS[way].give(self.client, token)

    def map(self, place: int) -> None:
        way, token, _ = self.held[place]
        if way != "cuMemCreate":
            return
        # Mapped and released: the mapping alone keeps it.
        self.held.pop(place)
        address = self.client.made("cuMemAddressReserve", OUT, BLOCK, 0, 0, 0)
        self.client.call("cuMemMap", address, BLOCK, 0, token, 0)
        self.client.made("cuMemRelease", token)
        self.mapped.append(address)

    def end_context(self) -> None:
        if not self.contexts:
            return
        context = self.contexts.pop()
        self.client.made("cuCtxDestroy_v2", context)
        self.held = [
            (way, token, owner)
            for way, token, owner in self.held
            if owner != context or way == "cuMemCreate"
        ]

    def check(self) -> None:
        if self.contexts:
            self.client.made("cuCtxSynchronize")
        assert self.client.held_bytes() == self.client.used_bytes() <= 2 * GIB

    def end(self) -> None:
        for address in self.mapped:
            self.client.call("cuMemUnmap", address, BLOCK)
        while self.contexts:
            self.end_context()
        for _, handle, _ in self.held:
            self.client.made("cuMemRelease", handle)


@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps)
def test_account_and_gpu_agree_after_every_step(program: list[tuple[str, Any, Any]]) -> None:
    with capped_client() as client:
        model = Program(client)
        for step in [("context", None, None), *program]:
            model.step(*step)
            model.check()
        model.end()
        assert client.held_bytes() == client.used_bytes() == 0


def test_threads_that_allocate_and_free_at_once_lose_nothing(tmp_path: Path) -> None:
    with simulated_node("1xA100-80G") as node:
        share = Share.make(node, tmp_path / "run", {0: 2 * GIB})
        done = share.run([build("threads.c", "-pthread", *LINK), "8", "2000"])
        assert done.returncode == 0, done.stderr
        held, free, refused = map(int, done.stdout.split())
        assert held == free
        assert refused > 0


def test_a_forked_child_has_an_account_of_its_own(tmp_path: Path) -> None:
    with simulated_node("1xA100-80G") as node:
        share = Share.make(node, tmp_path / "run", {0: 2 * GIB})
        done = share.run([build("forks.c", *LINK)])
        assert done.returncode == 0, done.stderr
        assert done.stdout == "child: 0 bytes at first, again 0 at last\nparent: as before\n"


def test_a_mapping_that_outlives_its_handle_is_held(tmp_path: Path) -> None:
    with simulated_node("1xA100-80G") as node:
        share = Share.make(node, tmp_path / "run", {0: 2 * GIB})
        with Client(share) as client:
            client.open()
            before = client.held_bytes()
            for _ in range(20):
                handle = client.made("cuMemCreate", OUT, BLOCK, allocation(), 0)
                address = client.made("cuMemAddressReserve", OUT, BLOCK, 0, 0, 0)
                client.made("cuMemMap", address, BLOCK, 0, handle, 0)
                client.made("cuMemRelease", handle)
            assert client.held_bytes() == client.used_bytes() == before + 20 * BLOCK


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_account_and_gpu_agree_in_many_programs(program: list[tuple[str, Any, Any]]) -> None:
    with capped_client() as client:
        model = Program(client)
        for step in [("context", None, None), *program]:
            model.step(*step)
        model.check()
        model.end()
        assert client.held_bytes() == client.used_bytes() == 0
