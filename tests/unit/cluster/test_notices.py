"""Which changes are worth an event, and what it says."""

from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.inventory import GpuRecord, NodeInventory
from deviceplugin.cluster.inventory import inventory_of
from deviceplugin.cluster.notices import not_as_planned, of_hardware
from deviceplugin.gpus.hardware import Gpu, Hardware


def gpus(**unusable: str) -> NodeInventory:
    return NodeInventory(
        tuple(
            GpuRecord(name, index, "A100", 320, unusable=why)
            for index, (name, why) in enumerate(unusable.items())
        )
    )


def reasons(before: NodeInventory | None, now: NodeInventory) -> list[tuple[str, str]]:
    return [(each.reason, each.type) for each in of_hardware(before, now)]


def test_healthy_gpus_are_not_worth_a_word() -> None:
    assert reasons(None, gpus(a="", b="")) == []
    assert reasons(gpus(a=""), gpus(a="", b="")) == []


def test_a_fault_is_told_when_it_begins_changes_and_ends() -> None:
    assert reasons(None, gpus(a="Xid 79")) == [("GpuUnusable", "Warning")]
    assert reasons(gpus(a="Xid 79"), gpus(a="Xid 79")) == []
    assert reasons(gpus(a="Xid 79"), gpus(a="Xid 95")) == [("GpuUnusable", "Warning")]
    assert reasons(gpus(a="Xid 79"), gpus(a="")) == [("GpuRecovered", "Normal")]
    assert reasons(gpus(a="", b=""), gpus(a="")) == [("GpuGone", "Warning")]


def test_a_fault_says_which_gpu_why_and_what_follows() -> None:
    (notice,) = of_hardware(gpus(a=""), gpus(a="Xid 79"))
    assert "GPU 0 (A100, a) is unusable: Xid 79" in notice.message
    assert "nothing new starts on it" in notice.message


def given(*uuids: str, units: int = 4) -> Assignment:
    return Assignment({"main": tuple(Slice(uuid, units, 10) for uuid in uuids)})


def test_only_other_gpus_than_planned_are_told() -> None:
    assert not_as_planned(None, given("a"), str) is None
    assert not_as_planned(given("a", "b"), given("b", "a"), str) is None
    assert not_as_planned(given("a"), given("a", units=99), str) is None
    assert not_as_planned(Assignment({"other": ()}), given("a"), str) is None
    notice = not_as_planned(given("a"), given("b"), lambda uuid: f"GPU {uuid}")
    assert notice is not None
    assert "container main was given GPU b and not GPU a" in notice.message


def test_an_inventory_has_what_is_advertised_and_what_there_is() -> None:
    hardware = Hardware(
        (Gpu("GPU-x", 3, "L4", 24 << 30, sms=58, numa=1, unusable="Xid 48"),), driver="580.1"
    )
    found = inventory_of(hardware, lambda uuid: {"GPU-x": 94}[uuid], 256, compute_percent=150)
    assert found.gpus == (GpuRecord("GPU-x", 3, "L4", 94, 150, 24576, 58, 1, "Xid 48"),)
    assert (found.unit_mib, found.driver, found.links) == (256, "580.1", ())
