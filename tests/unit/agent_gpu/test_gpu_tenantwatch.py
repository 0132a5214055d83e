"""The watch over tenants survives whatever it finds in their files."""

import os
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.gpus.nvml import GpuProcess, Nvml, NvmlError
from deviceplugin.tenants import watch as tenantwatch
from deviceplugin.tenants.judgement import Breach, Kind
from deviceplugin.tenants.mountedfiles import place_of
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER, LOOKS
from deviceplugin.tenants.watch import TenantWatch
from shim import limits, usage
from tests.patience import eventually
from tests.unit.agent_gpu.tenant_scene import GIB, GPU, PID, UID, Scene


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


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenantwatch, "PATIENCE_S", 0.5)


@pytest.mark.usefixtures("hurried")
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


@pytest.mark.usefixtures("hurried")
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


def test_a_process_that_is_gone_accuses_nobody(scene: Scene) -> None:
    scene.driver.used_bytes = 40 * GIB
    (scene.folder / "proc" / str(PID) / "stat").unlink()
    assert scene.look_often() == set()


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
    assert watch.breaches == ()
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
