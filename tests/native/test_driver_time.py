"""How programs share a simulated GPU's time, by its own accounts and by their events.

Everything is queued ahead, so nothing here depends on when the machine runs which process.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from simgpu.node import LIBRARIES
from tests.native.driver_programs import DEADLINE_S, ROOT
from tests.simulated import SimulatedNode, simulated_node

MS = 10**6
HOUR_US = 3600 * 10**6


class Tenant:
    """A process with work on the first GPU; see driver_time/tenant.c."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tenant") / "tenant"
    source = Path(__file__).parent / "driver_time" / "tenant.c"
    flags = ["-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT / 'shim' / 'abi'}"]
    subprocess.run(["cc", *flags, source, LIBRARIES / "libcuda.so.1", "-o", target], check=True)
    return target


@contextmanager
def tenants(program: Path, node: SimulatedNode, count: int) -> Iterator[list[Tenant]]:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [program],
                    env=node.env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(count)
        ]
        try:
            yield [Tenant(process) for process in processes]
        finally:
            for process in processes:
                process.kill()


def all_busy_ns(node: SimulatedNode, tenants: list[Tenant]) -> list[int]:
    """Of all at the same moment."""
    snapshot = node.snapshot()
    return [snapshot.process(tenant.process.pid).usages[0].busy_ns for tenant in tenants]


def busy_ns(node: SimulatedNode, tenant: Tenant) -> int:
    return all_busy_ns(node, [tenant])[0]


def await_busy(node: SimulatedNode, tenant: Tenant, target_ns: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while busy_ns(node, tenant) < target_ns:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("count", [2, 3])
def test_tenants_with_endless_work_get_equal_shares(program: Path, count: int) -> None:
    with simulated_node("1xA100-80G") as node, tenants(program, node, count) as all_of_them:
        for tenant in all_of_them:
            assert tenant.ask(f"queue 1000 {HOUR_US}") == "queued"
        before = all_busy_ns(node, all_of_them)
        await_busy(node, all_of_them[0], before[0] + 1000 * MS)
        after = all_busy_ns(node, all_of_them)
    gained = [late - early for early, late in zip(before, after, strict=True)]
    for gain in gained:
        assert gain / sum(gained) == pytest.approx(1 / count, abs=0.01)


def test_event_pairs_contain_the_time_of_others(program: Path) -> None:
    with simulated_node("1xA100-80G") as node, tenants(program, node, 2) as (first, second):
        alone_ms = float(first.ask("measure 30000"))
        assert second.ask(f"queue 10 {HOUR_US}") == "queued"
        shared_ms = float(first.ask("measure 30000"))
        assert busy_ns(node, first) == (30 + 30 + 1 + 1) * MS
    assert alone_ms == pytest.approx(30, abs=0.001)
    assert shared_ms == pytest.approx(60, abs=4)  # whole slices of 2 ms of the other


def test_busy_time_is_what_was_launched(program: Path) -> None:
    with simulated_node("1xA100-80G") as node, tenants(program, node, 1) as (tenant,):
        assert tenant.ask("queue 1000 50") == "queued"
        assert tenant.ask("sync") == "done"
        assert busy_ns(node, tenant) == 50 * MS
        assert tenant.ask("queue 3 5") == "queued"
        assert tenant.ask("queue 2 20000") == "queued"
        assert tenant.ask("sync") == "done"
        assert busy_ns(node, tenant) == 50 * MS + 15_000 + 40 * MS
        assert node.snapshot().devices[0].launches == 1005
