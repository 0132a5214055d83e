"""The cases of the throttle benchmark: what runs, under which cap, and what must come out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

__all__ = ["NAMED", "Case", "Container", "Load", "full"]


@dataclass(frozen=True, slots=True)
class Load:
    """One process and how it uses the GPU; see bench/load.c."""

    kernel_us: tuple[float, ...] = (50,)
    blocks: int = 132
    per_sync: int = 16
    api: str = "plain"
    threads: int = 1
    streams: int = 0
    by_address: bool = False
    chained: bool = False
    """Each stream waits for the one before."""
    per_second: bool = False
    forks: bool = False
    """A child takes part as well, forked while kernels are launched."""
    start_after_s: float = 0
    idle_after_s: float = 0
    idle_s: float = 0

    @property
    def arguments(self) -> list[str]:
        values = {
            "kernel_us": ",".join(f"{size:g}" for size in self.kernel_us),
            "blocks": self.blocks,
            "per_sync": self.per_sync,
            "api": self.api,
            "threads": self.threads,
            "streams": self.streams,
            "by_address": int(self.by_address),
            "chained": int(self.chained),
            "per_second": int(self.per_second),
            "forks": int(self.forks),
            "start_after": self.start_after_s,
            "idle_after": self.idle_after_s,
            "idle": self.idle_s,
        }
        return [f"{name}={value}" for name, value in values.items()]


@dataclass(frozen=True, slots=True)
class Container:
    """What is started under one cap."""

    cap: float
    loads: tuple[Load, ...]
    policy: str = "fixed"
    late: tuple[Load, ...] = ()
    """Processes that come later, by their own start_after_s."""
    killed_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Containers that share one GPU, and how close to their caps they must come."""

    name: str
    containers: tuple[Container, ...]
    within: float = 1.0
    """Points of share."""
    kind: str = "steady"
    """steady, start (the first second, also after a pause), burst, or whole (nothing is lost)."""
    window_sd_most: float | None = None
    longest_block_ms_most: float | None = None


def _one(name: str, cap: float, load: Load, within: float = 1.0) -> Case:
    """A single container; the promises on smoothness hold for kernels up to 1 ms."""
    short = max(load.kernel_us) <= 1000
    return Case(
        name,
        (Container(cap, (load,)),),
        within,
        window_sd_most=3.0 if short else None,
        longest_block_ms_most=60.0 if short and cap >= 30 else None,
    )


def _several(name: str, *containers: Container) -> Case:
    loads = [load for each in containers for load in (*each.loads, *each.late)]
    short = max(max(load.kernel_us) for load in loads) <= 1000
    return Case(name, containers, window_sd_most=3.0 if short else None)


def _two(name: str, first: Load, second: Load) -> Case:
    return _several(name, Container(30, (first,)), Container(70, (second,)))


# A queue of about 10 ms keeps a loop busy while the host is late to synchronise.
_SHORT = Load((50,), per_sync=256)
_MILLISECOND = Load((1000,), per_sync=32)
_LONG = Load((20_000,), per_sync=4)
_ALL_SIZES = (20.0, 50.0, 1000.0, 20_000.0)

NAMED: tuple[Case, ...] = (
    _one("20us-1block-cap10", 10, Load((20,), 1, 16)),
    _one("20us-sync-cap30", 30, Load((20,), 132, 1)),
    _one("50us-26400blocks-cap30", 30, Load((50,), 26_400, 16)),
    _one("50us-sync-cap80", 80, Load((50,), 132, 1)),
    _one("1ms-132blocks-cap30", 30, Load((1000,), 132, 16)),
    _one("1ms-1block-sync-cap50", 50, Load((1000,), 1, 1)),
    _one("1ms-500000blocks-cap80", 80, Load((1000,), 500_000, 16)),
    _one("20ms-sync-cap30", 30, Load((20_000,), 26_400, 1)),
    _one("200ms-cap30", 30, Load((200_000,), 132, 1), 2.0),
    _one("mixed-sizes-cap30", 30, Load((*_ALL_SIZES, 200_000), per_sync=16), 2.0),
    _one("changing-sizes-cap30", 30, Load(_ALL_SIZES, per_sync=16, per_second=True), 2.0),
    _one("graph-cap30", 30, Load((50,), api="graph")),
    _one("cooperative-cap30", 30, Load((50,), api="cooperative")),
    _one("ptsz-4threads-cap30", 30, Load((50,), api="ptsz", threads=4, per_sync=4)),
    _one("ex-by-address-cap50", 50, Load((50,), api="ex", by_address=True)),
    _one("4streams-cap30", 30, Load((1000,), streams=4, per_sync=16)),
    Case(
        "first-second-cap30",
        (Container(30, (Load((1000,), idle_after_s=3.0, idle_s=10.0),)),),
        3.0,
        "start",
    ),
    _two("two-30-70-1ms", _MILLISECOND, _MILLISECOND),
    _two("two-30-70-50us-20ms", _SHORT, _LONG),
    _several("two-processes-cap50", Container(50, (Load((50,)), Load((1000,))))),
    _several(
        "four-processes-one-late-cap50",
        Container(
            50,
            (Load((50,)), Load((1000,)), Load((1000,), per_sync=1)),
            late=(Load((50,), start_after_s=2.0),),
        ),
    ),
    _several(
        "three-20-30-50-one-killed",
        Container(20, (_MILLISECOND,)),
        Container(30, (_MILLISECOND,)),
        Container(50, (_MILLISECOND,), killed_after_s=13.0),
    ),
    Case(
        "burst-30-70",
        (
            Container(30, (_MILLISECOND,), "burst"),
            Container(70, (replace(_MILLISECOND, idle_after_s=0.5, idle_s=4.0),), "burst"),
        ),
        kind="burst",
    ),
    Case("alone-cap100", (Container(100, (Load((50,), per_sync=16),)),), 1.0, "whole"),
)


def full() -> tuple[Case, ...]:
    """Every combination of the table in docs/compute.md."""
    return (*NAMED, *_alone(), *_roads(), *_together())


def _alone() -> Iterator[Case]:
    for cap, size, blocks, per_sync in product(
        (10, 30, 50, 80), _ALL_SIZES, (1, 132, 26_400, 500_000), (1, 16)
    ):
        load = Load((size,), blocks, per_sync)
        yield _one(f"{size:g}us-{blocks}blocks-{per_sync}persync-cap{cap}", cap, load)
    for cap in (10, 50, 80):
        yield _one(f"200ms-cap{cap}", cap, Load((200_000,), per_sync=1), 2.0)
        yield _one(f"mixed-sizes-cap{cap}", cap, Load((*_ALL_SIZES, 200_000)), 2.0)
        yield _one(f"changing-sizes-cap{cap}", cap, Load(_ALL_SIZES, per_second=True), 2.0)


def _roads() -> Iterator[Case]:
    """Every launching call by both ways of finding it; threads and streams."""
    apis = ("plain", "grid", "multi", "ex", "ex_ptsz", "graph", "cooperative", "ptsz")
    for api, size, by_address in product(apis, _ALL_SIZES, (False, True)):
        road = "address" if by_address else "symbol"
        # This call takes no default stream.
        load = Load((size,), api=api, by_address=by_address, streams=int(api == "multi"))
        yield _one(f"{api}-by-{road}-{size:g}us-cap30", 30, load)
    for size, streams, chained in product((50.0, 1000.0), (2, 4), (False, True)):
        name = f"{streams}streams{'-chained' if chained else ''}-{size:g}us-cap30"
        yield _one(name, 30, Load((size,), streams=streams, chained=chained))
    for size, threads, api in product((50.0, 1000.0), (2, 4), ("plain", "ptsz")):
        load = Load((size,), api=api, threads=threads, per_sync=4)
        yield _one(f"{api}-{threads}threads-{size:g}us-cap30", 30, load)


def _together() -> Iterator[Case]:
    """Two and three containers, and processes of one, with all sizes."""
    deep = {20.0: 512, 50.0: 256, 1000.0: 32, 20_000.0: 4}
    loads = {size: Load((size,), per_sync=deep[size]) for size in _ALL_SIZES}
    for first, second in product(_ALL_SIZES, _ALL_SIZES):
        yield _two(f"two-30-70-{first:g}us-{second:g}us", loads[first], loads[second])
    for size in _ALL_SIZES:
        caps = (20, 30, 50)
        yield _several(
            f"three-20-30-50-{size:g}us", *(Container(cap, (loads[size],)) for cap in caps)
        )
        for count in (2, 4):
            together = Container(50, (loads[size],) * count)
            yield _several(f"{count}processes-{size:g}us-cap50", together)
