"""Nobody hides from the watch over tenants, and nobody who ends is accused."""

import time

import pytest

from deviceplugin.gpus.nvml import GpuProcess, NvmlError
from deviceplugin.tenants import watch as tenantwatch
from deviceplugin.tenants.judgement import Breach, Kind
from deviceplugin.tenants.procfs import MOST_THREADS, ProcessView, ProcFs, Status
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER, LOOKS
from tests.unit.agent_gpu.tenant_scene import GIB, PID, Clock, Scene


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
