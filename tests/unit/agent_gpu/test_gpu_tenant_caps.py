"""Tenants are held to their caps, whatever those were a moment ago."""

import pytest

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.gpus.nvml import GpuProcess, NvmlError
from deviceplugin.tenants import watch as tenantwatch
from deviceplugin.tenants.allowance import SPAN
from deviceplugin.tenants.judgement import Account, Breach, Kind
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER
from shim import limits
from tests.unit.agent_gpu.tenant_scene import GIB, GPU, Driver, Scene


def test_the_cap_is_the_one_in_the_limits_file(scene: Scene) -> None:
    scene.driver.used_bytes = 5 * GIB
    assert scene.look_often() == {Kind.OVER_CAP, Kind.NOT_BOOKED}
    device = limits.DeviceLimits(GPU, 8 * GIB)
    limits.update(scene.limits, limits.Limits((device,)))
    scene.told.clear()
    assert scene.look_often() == {Kind.NOT_BOOKED}, "it was resized meanwhile"


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


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("missed", ["process", "gpu"])
def test_an_agent_whose_first_looks_miss_a_shrunk_container_evicts_nobody(
    scene: Scene, missed: str
) -> None:
    scene.shrink(1 * GIB)
    scene.driver.used_bytes = 3 * GIB
    ended: list[Breach] = []
    watch = scene.watch(end=ended.append)
    listed, gpus = scene.driver.listed, scene.gpus
    if missed == "gpu":
        scene.gpus = []
    else:
        scene.driver.listed = []
    for _ in range(2 * SPAN):
        watch.look()
    scene.driver.listed, scene.gpus = listed, gpus
    assert scene.look_often(watch) == set()
    assert ended == []


@pytest.mark.usefixtures("account")
def test_while_a_gpu_is_not_shown_nothing_is_taken_from_a_shrunk_container(scene: Scene) -> None:
    scene.driver.used_bytes = 3 * GIB
    watch = scene.watch()
    watch.look()
    scene.shrink(1 * GIB)
    watch.look()
    gpus, scene.gpus = scene.gpus, []
    for _ in range(2 * SPAN):
        watch.look()
    scene.gpus = gpus
    assert scene.look_often(watch) == set()


def test_limits_that_cannot_be_read_accuse_nobody(scene: Scene) -> None:
    scene.limits.write_bytes(b"half a file")
    scene.driver.used_bytes = 40 * GIB
    assert scene.look_often() == set()


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
