"""The watch over tenants survives whatever it finds in their files."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.nvml import GpuProcess, Nvml, NvmlError
from deviceplugin.tenants import watch as tenantwatch
from deviceplugin.tenants.allowance import SPAN
from deviceplugin.tenants.judgement import Account, Breach, Kind
from deviceplugin.tenants.mountedfiles import place_of
from deviceplugin.tenants.procfs import MOST_THREADS, ProcessView, ProcFs, Status
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER, LOOKS
from deviceplugin.tenants.watch import TenantWatch
from shim import limits, usage
from tests.patience import eventually

GIB = 1 << 30
GPU = "GPU-00000000-0000-0000-0000-00000000000a"
UID = "0a1b2c3d-1111-2222-3333-444455556666"
PID = 4711


@dataclass
class Driver:
    """Stands in for a session with one process on the GPU."""

    used_bytes: int = GIB
    error: NvmlError | None = None
    listed: list[int] = field(default_factory=lambda: [PID])

    def processes(self, uuid: str) -> list[GpuProcess]:
        if self.error is not None:
            raise self.error
        return [GpuProcess(pid, self.used_bytes) for pid in self.listed]


@dataclass
class Clock:
    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s


@dataclass
class Scene:
    """A container with its files, and a process in it that has the shim."""

    folder: Path
    driver: Driver = field(default_factory=Driver)
    told: list[Breach] = field(default_factory=list)
    fell_from_bytes: int = 0
    allocations: list[ContainerAllocation] | None = None
    gpus: list[str] = field(default_factory=lambda: [GPU])
    starts: int = 1

    def __post_init__(self) -> None:
        process = self.folder / "proc" / str(PID)
        process.mkdir(parents=True)
        (process / "cgroup").write_text(f"0::/kubepods/pod{UID}/{'c' * 64}\n")
        (process / "mountinfo").write_text("")
        (process / "stat").write_text(f"{PID} (x) S {'0 ' * 18}7 0\n")
        self.shim.write_text("")
        inode = self.shim.stat().st_ino
        (process / "maps").write_text(f"1-2 r-xp 0 fe:01 {inode} /usr/lib/libaliquot.so\n")
        device = limits.DeviceLimits(GPU, 4 * GIB)
        limits.create(self.limits, limits.Kind.MEMORY, limits.Limits((device,)))
        usage.create(self.usage, limits.Kind.MEMORY, 1)

    @property
    def shim(self) -> Path:
        return self.folder / "libaliquot-1.so"

    @property
    def limits(self) -> Path:
        return self.folder / "limits"

    @property
    def usage(self) -> Path:
        return self.folder / "usage"

    def allocation(self) -> ContainerAllocation:
        return ContainerAllocation(
            id="t1",
            key=ContainerKey("ns", "pod", "main"),
            pod_uid=UID,
            gpus=(GPU,),
            memory_units=16,
            compute_percent=30,
            whole=False,
            policy="fixed",
            weight=1,
            memory_limits=self.limits,
            memory_usage=self.usage,
            compute_limits=None,
            compute_usage=None,
            started=True,
            planned=None,
            member=None,
            fell_from_bytes=self.fell_from_bytes,
            starts=self.starts,
        )

    def shrink(self, cap_bytes: int) -> None:
        self.fell_from_bytes = 4 * GIB
        limits.update(self.limits, limits.Limits((limits.DeviceLimits(GPU, cap_bytes),)))

    def watch(
        self,
        is_excused: Callable[[ContainerAllocation], bool] = lambda _: False,
        end: Callable[[Breach], None] = lambda _: None,
        was_given: Callable[[str, str], bool | None] = lambda _gpu, _pod_uid: False,
    ) -> TenantWatch:
        return TenantWatch(
            cast("Nvml", self.driver),
            gpus=lambda: self.gpus,
            allocations=lambda: (
                [self.allocation()] if self.allocations is None else self.allocations
            ),
            shims=lambda: [self.shim, self.folder / "an-old-one.so"],
            report=self.told.append,
            proc=self.folder / "proc",
            is_excused=is_excused,
            end=end,
            was_given=was_given,
        )

    def look_often(self, watch: TenantWatch | None = None) -> set[Kind]:
        watch = watch or self.watch()
        for _ in range(2 * CONFIRMED_AFTER):
            watch.look()
        return {breach.kind for breach in self.told}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_cap_is_the_one_in_the_limits_file(scene: Scene) -> None:
    scene.driver.used_bytes = 5 * GIB
    assert scene.look_often() == {Kind.OVER_CAP, Kind.NOT_BOOKED}
    device = limits.DeviceLimits(GPU, 8 * GIB)
    limits.update(scene.limits, limits.Limits((device,)))
    scene.told.clear()
    assert scene.look_often() == {Kind.NOT_BOOKED}, "it was resized meanwhile"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the container's usage file says."""
    booked = {GPU: 3 * GIB}
    monkeypatch.setattr(tenantwatch, "_account", lambda _: Account(dict(booked)))
    return booked


@pytest.mark.usefixtures("account")
def test_who_holds_what_its_cap_was_before_it_fell_has_done_nothing_wrong(scene: Scene) -> None:
    scene.driver.used_bytes = 3 * GIB
    watch = scene.watch()
    assert scene.look_often(watch) == set()
    scene.shrink(2 * GIB)
    assert scene.look_often(watch) == set()
    scene.driver.used_bytes = 4 * GIB
    assert Kind.OVER_CAP in scene.look_often(watch), "it takes more, which the shim would refuse"


def test_what_was_freed_after_the_cap_fell_may_not_be_taken_again(
    scene: Scene, account: dict[str, int]
) -> None:
    scene.driver.used_bytes = 3 * GIB
    watch = scene.watch()
    watch.look()
    scene.shrink(GIB)
    watch.look()
    scene.driver.used_bytes = account[GPU] = 2 * GIB
    for _ in range(2 * SPAN):
        watch.look()
    assert scene.told == []
    scene.driver.used_bytes = account[GPU] = 3 * GIB
    assert scene.look_often(watch) == {Kind.OVER_CAP}


def test_a_look_that_misses_a_process_takes_nothing_from_a_shrunk_container(
    scene: Scene, account: dict[str, int]
) -> None:
    scene.driver.used_bytes = 3 * GIB
    watch = scene.watch()
    watch.look()
    scene.shrink(2 * GIB)
    watch.look()
    scene.driver.used_bytes = 0
    watch.look()
    scene.driver.used_bytes = 3 * GIB
    assert scene.look_often(watch) == set()
    scene.driver.error = NvmlError("GPU", "does not answer", 15)
    assert scene.look_often(watch) == set()
    scene.driver.error = None
    assert scene.look_often(watch) == set()
    assert account[GPU] == 3 * GIB


def test_a_cap_that_falls_while_a_program_begins_evicts_nobody(
    scene: Scene, account: dict[str, int]
) -> None:
    """It took its memory between two looks, before the cap fell."""
    scene.driver.used_bytes = account[GPU] = 0
    processes, scene.driver.listed = scene.driver.listed, []
    watch = scene.watch()
    watch.look()
    scene.driver.listed = processes
    scene.driver.used_bytes = account[GPU] = 3 * GIB
    scene.shrink(2 * GIB)
    assert scene.look_often(watch) == set()


def test_an_agent_that_starts_anew_believes_an_account_no_more_than_its_books(
    scene: Scene, account: dict[str, int]
) -> None:
    """It has not seen the cap fall; its books say from where, and the account how much of that
    is held."""
    scene.driver.used_bytes = 3 * GIB
    scene.shrink(2 * GIB)
    assert scene.look_often() == set()
    account[GPU] = scene.driver.used_bytes = 5 * GIB
    assert scene.look_often() == {Kind.OVER_CAP}, "more than it ever might"
    scene.told.clear()
    account[GPU], scene.driver.used_bytes = 0, 3 * GIB
    assert Kind.OVER_CAP in scene.look_often(), "nothing says that it was there before"
    scene.told.clear()
    scene.fell_from_bytes, account[GPU] = 0, 3 * GIB
    assert scene.look_often() == {Kind.OVER_CAP}, "its cap never fell"


def test_the_shim_counts_under_any_version_that_is_installed(scene: Scene) -> None:
    assert Kind.SHIM_MISSING not in scene.look_often()
    scene.shim.unlink()
    assert Kind.SHIM_MISSING in scene.look_often()


def test_who_was_excused_from_the_shim_needs_none(scene: Scene) -> None:
    scene.shim.unlink()
    watch = scene.watch(is_excused=lambda allocation: allocation.pod_uid == UID)
    scene.driver.used_bytes = 3 * GIB
    for _ in range(CONFIRMED_AFTER):
        watch.look()
    assert scene.told == []
    scene.driver.used_bytes = 5 * GIB
    for _ in range(CONFIRMED_AFTER):
        watch.look()
    assert [breach.kind for breach in scene.told] == [Kind.OVER_CAP]


def test_a_process_is_known_by_the_mounts_of_its_container(scene: Scene) -> None:
    """Without its pod's name in the cgroup, and without the shim."""
    process = scene.folder / "proc" / str(PID)
    (process / "cgroup").write_text("0::/\n")
    (process / "maps").write_text("")
    assert scene.look_often() == set(), "a process of the host, as it seems"
    place = place_of(scene.usage.parent)
    assert place is not None
    (process / "mountinfo").write_text(
        f"7 1 {place.device} {place.root} /run/aliquot/memory rw - ext4 /dev/sda1 rw\n"
    )
    assert scene.look_often() == {Kind.SHIM_MISSING, Kind.NOT_BOOKED}


def test_a_gpu_that_does_not_answer_accuses_nobody(scene: Scene) -> None:
    scene.driver.error = NvmlError("GPU", "GPU is lost", 15)
    assert scene.look_often() == set()


def test_while_one_gpu_hangs_the_others_are_watched(scene: Scene) -> None:
    hanging, asked = threading.Event(), []

    def processes(uuid: str) -> list[GpuProcess]:
        asked.append(uuid)
        if uuid != GPU:
            hanging.wait()
        return [GpuProcess(PID, 40 * GIB)]

    scene.driver.processes = processes  # type: ignore[method-assign]
    scene.gpus = ["GPU-hangs", GPU]
    try:
        assert Kind.OVER_CAP in scene.look_often()
        assert asked.count("GPU-hangs") == 1, "and it is not asked again and again"
    finally:
        hanging.set()


def test_a_gpu_that_answers_again_is_asked_again(scene: Scene) -> None:
    hanging = threading.Event()
    answers = iter([hanging.wait] + [bool] * 100)

    def processes(_: str) -> list[GpuProcess]:
        next(answers)()
        return [GpuProcess(PID, 40 * GIB)]

    scene.driver.processes = processes  # type: ignore[method-assign]
    watch = scene.watch()
    watch.look()
    assert scene.look_often(watch) == set()
    hanging.set()
    eventually(lambda: Kind.OVER_CAP in scene.look_often(watch))


def test_while_nobody_uses_a_gpu_hundreds_of_containers_cost_nothing(scene: Scene) -> None:
    class Counted(list[ContainerAllocation]):
        reads = 0

        def __iter__(self) -> Iterator[ContainerAllocation]:
            self.reads += 1
            return super().__iter__()

    containers = scene.allocations = Counted([scene.allocation()])
    scene.driver.listed = []
    watch = scene.watch()
    for _ in range(3 * LOOKS):
        watch.look()
    reads = containers.reads
    watch.look()
    assert containers.reads == reads
    scene.driver.used_bytes, scene.driver.listed = 40 * GIB, [PID]
    assert Kind.OVER_CAP in scene.look_often(watch), "and who begins to is seen at once"


def test_stopping_waits_for_no_driver_that_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenantwatch, "LOOK_S", 0.001)
    monkeypatch.setattr(tenantwatch, "STOP_S", 0.01)
    hanging, hangs = threading.Event(), threading.Event()

    def report(_: Breach) -> None:
        hangs.set()
        hanging.wait()

    scene.driver.used_bytes = 40 * GIB
    watch = scene.watch()
    watch._report = report
    watch.start()
    assert hangs.wait(60)
    watch.stop()
    assert watch.is_alive(), "it hangs, and ends with the process"
    hanging.set()
    watch.join()


def test_limits_that_cannot_be_read_accuse_nobody(scene: Scene) -> None:
    scene.limits.write_bytes(b"half a file")
    scene.driver.used_bytes = 40 * GIB
    assert scene.look_often() == set()


def test_a_process_that_is_gone_accuses_nobody(scene: Scene) -> None:
    scene.driver.used_bytes = 40 * GIB
    (scene.folder / "proc" / str(PID) / "stat").unlink()
    assert scene.look_often() == set()


def test_who_ends_its_first_thread_is_held_to_its_cap_and_the_shim(scene: Scene) -> None:
    process = scene.folder / "proc" / str(PID)
    thread = process / "task" / str(PID + 1)
    thread.mkdir(parents=True)
    for name in ("cgroup", "mountinfo", "stat"):
        (thread / name).write_text((process / name).read_text())
    (thread / "maps").write_text("1-2 r-xp 0 fe:01 1 /bin/its-own\n")
    (process / "maps").write_text("")
    (process / "stat").write_text(f"{PID} (x) Z {'0 ' * 5}4 {'0 ' * 12}7 0\n")
    (process / "mountinfo").unlink()
    scene.driver.used_bytes = 40 * GIB
    assert scene.look_often() == {Kind.OVER_CAP, Kind.NOT_BOOKED, Kind.SHIM_MISSING}


def test_who_was_killed_is_not_taken_for_one_without_the_shim(scene: Scene) -> None:
    """While the driver frees, the process is there, has nothing mapped, and holds its memory."""
    process = scene.folder / "proc" / str(PID)
    scene.driver.used_bytes = 0
    watch = scene.watch()
    assert scene.look_often(watch) == set()
    for name in ("maps", "mountinfo"):
        (process / name).write_text("")
    (process / "stat").write_text(f"{PID} (x) D {'0 ' * 5}4 {'0 ' * 12}7 0\n")
    assert scene.look_often(watch) == set()
    scene.driver.used_bytes = 3 * GIB
    assert scene.look_often(watch) == set(), "nor for one that has hidden what it holds"
    assert scene.look_often() == set(), "nor by an agent that has just started"
    scene.driver.used_bytes = 40 * GIB
    assert scene.look_often(watch) == {Kind.OVER_CAP}


def test_no_number_of_ended_threads_makes_a_process_one_that_is_ending(
    scene: Scene,
) -> None:
    """Traced threads that nobody waits for pile up, and could hide the one that lives."""
    process = scene.folder / "proc" / str(PID)
    (process / "maps").write_text("")
    (process / "stat").write_text(f"{PID} (x) Z {'0 ' * 5}4 {'0 ' * 12}7 0\n")
    for number in range(MOST_THREADS):
        thread = process / "task" / str(9000 + number)
        thread.mkdir(parents=True)
        (thread / "stat").write_text(f"{9000 + number} (x) Z {'0 ' * 5}4 {'0 ' * 12}7 0\n")
    assert Kind.SHIM_MISSING in scene.look_often()


def test_whose_memory_maps_are_hidden_from_us_is_held_to_its_cap(scene: Scene) -> None:
    process = scene.folder / "proc" / str(PID)
    for name in ("maps", "mountinfo"):
        (process / name).unlink()
        (process / name).mkdir()
    scene.driver.used_bytes = 40 * GIB
    assert scene.look_often() == {Kind.OVER_CAP, Kind.NOT_BOOKED}


def test_who_takes_long_to_read_about_is_judged_and_keeps_nobody_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many processes of one tenant, none of them with the shim, and one of another."""
    slow, other_uid = range(5000, 5200), "0a1b2c3d-1111-2222-3333-444455557777"
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.now_s)
    for pid in slow:
        folder = scene.folder / "proc" / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/pod{other_uid}/{'d' * 64}\n")
        (folder / "stat").write_text(f"{pid} (x) S {'0 ' * 18}7 0\n")
        (folder / "mountinfo").write_text("")
        (folder / "maps").write_text("")
    listed = [GpuProcess(pid, GIB) for pid in (*slow, PID)]
    monkeypatch.setattr(scene.driver, "processes", lambda _: listed)
    watch = scene.watch()
    view = ProcFs.view

    def read(proc: ProcFs, owner: ProcessView, status: Status) -> ProcessView:
        clock.at_s += 0.3 if owner.pid in slow else 0.001
        return view(proc, owner, status)

    monkeypatch.setattr(ProcFs, "view", read)
    (scene.folder / "proc" / str(PID) / "maps").write_text("")
    began_s = clock.at_s
    while {Kind.SHIM_MISSING, Kind.NOT_ALLOCATED} - {each.kind for each in scene.told}:
        watch.look()
        clock.at_s += tenantwatch.LOOK_S
        assert clock.at_s - began_s <= 5


def test_processes_that_last_two_looks_each_do_not_hide_what_their_container_does(
    scene: Scene,
) -> None:
    watch, process = scene.watch(), scene.folder / "proc" / str(PID)
    (process / "maps").write_text("")
    for number in range(LOOKS):
        process = process.rename(process.with_name(str(5000 + number // 2)))
        scene.driver.listed = [5000 + number // 2]
        watch.look()
    assert {each.kind for each in scene.told} == {Kind.SHIM_MISSING, Kind.NOT_BOOKED}


def test_who_returns_what_it_took_between_looks_is_told_but_not_ended(scene: Scene) -> None:
    ended: list[Breach] = []
    watch = scene.watch(end=ended.append)
    for number in range(3 * LOOKS):
        scene.driver.used_bytes = 0 if number % 3 == 2 else 40 * GIB
        watch.look()
    assert Kind.OVER_CAP in {each.kind for each in scene.told}
    assert ended == []
    scene.driver.used_bytes = 40 * GIB
    for _ in range(CONFIRMED_AFTER):
        watch.look()
    assert Kind.OVER_CAP in {each.kind for each in ended}


def test_a_gpu_that_does_not_answer_in_one_look_hides_nothing(scene: Scene) -> None:
    watch = scene.watch()
    scene.driver.used_bytes = 40 * GIB
    for number in range(2 * CONFIRMED_AFTER):
        scene.driver.error = NvmlError("GPU", "busy", 15) if number % 2 else None
        watch.look()
    assert Kind.OVER_CAP in {each.kind for each in scene.told}


def test_who_has_the_gpu_through_another_plugin_is_left_alone(scene: Scene) -> None:
    asked: list[tuple[str, str]] = []
    answers: list[bool | None] = [None, None, True]

    def was_given(gpu: str, pod_uid: str) -> bool | None:
        asked.append((gpu, pod_uid))
        return answers[len(asked) - 1]

    scene.allocations = []
    watch = scene.watch(was_given=was_given)
    for _ in range(6 * CONFIRMED_AFTER):
        watch.look()
    assert scene.told == []
    assert asked == [(GPU, UID)] * 3, "until it is known, and then no more"
    answers[:] = [False]
    asked.clear()
    watch = scene.watch(was_given=was_given)
    assert scene.look_often(watch) == {Kind.NOT_ALLOCATED}


def test_a_container_that_starts_anew_is_known_by_its_new_files_at_once(scene: Scene) -> None:
    """Not by those of its last life, whose inode may be somebody else's by now."""
    process = scene.folder / "proc" / str(PID)
    (process / "cgroup").write_text("0::/\n")
    scene.driver.used_bytes = 40 * GIB

    def map_usage() -> None:
        place, inode = scene.usage.stat(), scene.usage.stat().st_ino
        device = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}"
        (process / "maps").write_text(f"1-2 rw-s 0 {device} {inode} /run/aliquot/memory/usage\n")

    map_usage()
    watch = scene.watch()
    assert Kind.OVER_CAP in scene.look_often(watch)
    scene.told.clear()
    scene.driver.listed = []
    for _ in range(2 * LOOKS):
        watch.look()
    scene.usage.rename(scene.usage.with_name("of-its-last-life"))
    usage.create(scene.usage, limits.Kind.MEMORY, 1)
    scene.starts += 1
    map_usage()
    (process / "stat").write_text(f"{PID} (x) S {'0 ' * 18}8 0\n")
    scene.driver.listed = [PID]
    assert Kind.OVER_CAP in scene.look_often(watch)


def test_memory_that_was_freed_while_we_looked_is_explained(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that allocates and frees all the time is no suspect, whenever it is looked at."""
    holds = {"bytes": 3 * GIB}

    def account(_: ContainerAllocation) -> Account:
        return Account({GPU: holds["bytes"]})

    class Restless(Driver):
        def processes(self, uuid: str) -> list[GpuProcess]:
            listed = super().processes(uuid)
            holds["bytes"] = 0
            return listed

    scene.driver = Restless(3 * GIB)
    monkeypatch.setattr(tenantwatch, "_account", account)
    watch = scene.watch()
    for _ in range(3 * CONFIRMED_AFTER):
        holds["bytes"] = 3 * GIB
        watch.look()
    assert scene.told == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=4096), at=st.integers(0, 70_000), cut=st.booleans())
def test_no_content_of_a_usage_file_stops_the_watch(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, at: int, cut: bool
) -> None:
    scene = Scene(tmp_path_factory.mktemp("scene"))
    image = bytearray(scene.usage.read_bytes())
    image[at : at + len(garbage)] = garbage
    scene.usage.write_bytes(image[:at] if cut else image)
    scene.driver.used_bytes = 5 * GIB
    assert Kind.OVER_CAP in scene.look_often(), "and it hides nothing"


def test_the_thread_goes_on_after_a_failure_and_ends_when_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenantwatch, "LOOK_S", 0.001)
    calls: list[int] = []
    enough = threading.Event()

    def allocations() -> list[ContainerAllocation]:
        calls.append(1)
        if len(calls) == 5:
            enough.set()
        if len(calls) == 2:
            raise RuntimeError("just now everything is wrong")
        return []

    watch = TenantWatch(
        cast("Nvml", scene.driver),
        gpus=lambda: [GPU],
        allocations=allocations,
        shims=list,
        report=scene.told.append,
        proc=scene.folder / "proc",
    )
    watch.start()
    assert enough.wait(60)
    watch.stop()
    assert not watch.is_alive()
    watch.stop()
