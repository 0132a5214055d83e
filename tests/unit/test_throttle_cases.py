"""The throttle benchmark covers what compute shares promise."""

from itertools import product

from bench.cases import NAMED, full
from bench.throttle import Result

KEYS = {
    "case",
    "cap",
    "kernel_us",
    "blocks",
    "per_sync",
    "api",
    "share",
    "reachable",
    "window_sd",
    "longest_block_ms",
    "target",
    "ok",
}


def test_there_are_24_named_cases_and_no_name_twice() -> None:
    assert len(NAMED) == 24
    names = [case.name for case in full()]
    assert len(names) == len(set(names))


def test_all_combinations_of_one_container_are_there() -> None:
    found = {
        (case.containers[0].cap, *load.kernel_us, load.blocks, load.per_sync)
        for case in full()
        for load in case.containers[0].loads
    }
    sizes, blocks = (20, 50, 1000, 20_000), (1, 132, 26_400, 500_000)
    assert found >= set(product((10, 30, 50, 80), sizes, blocks, (1, 16)))


def test_all_calls_and_both_ways_of_finding_them_are_there() -> None:
    loads = [load for case in full() for container in case.containers for load in container.loads]
    apis = {"plain", "ex", "cooperative", "ptsz", "graph", "grid", "multi", "ex_ptsz"}
    assert {(load.api, load.by_address) for load in loads} >= set(product(apis, (False, True)))


def test_all_sizes_meet_all_sizes_in_two_containers() -> None:
    pairs = {
        tuple(container.loads[0].kernel_us[0] for container in case.containers)
        for case in full()
        if [container.cap for container in case.containers] == [30, 70] and case.kind == "steady"
    }
    sizes = (20, 50, 1000, 20_000)
    assert pairs >= set(product(sizes, sizes))


def test_a_record_says_what_was_measured_and_expected() -> None:
    case = NAMED[0]
    result = Result(case, (10.0,), (95.0,), 0.1, 2.0, (10.0,), ())
    assert result.record().keys() >= KEYS
    assert result.record()["ok"] is True
    assert Result(case, (14.0,), (95.0,), 0.1, 2.0, (10.0,), ("too much",)).record()["ok"] is False
