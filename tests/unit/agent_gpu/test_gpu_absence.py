"""A node that shows no GPU: has its agent nothing to do, or is something the matter?"""

from pathlib import Path

import pynvml
import pytest

from deviceplugin.gpus.absence import Absence, explain_absence
from deviceplugin.gpus.inventory import Choice, Found
from deviceplugin.gpus.nvml import GpuFacts, NvmlError
from deviceplugin.gpus.pcibus import gpus_on_bus
from tests.unit.agent_gpu.test_gpu_watch import Driver, make

NOTHING = Found("", (), ())
GPU = GpuFacts("GPU-a", 0, "A100", 80 << 30, 108, 0, 0)
BUS = ("0000:3b:00.0",)


def failed(code: int) -> NvmlError:
    return NvmlError("opening NVML", "it says no", code)


@pytest.mark.parametrize(
    ("found", "error", "on_bus", "is_fault", "text"),
    [
        (NOTHING, failed(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), (), False, "has no GPU"),
        (NOTHING, failed(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), (), False, "has no GPU"),
        (NOTHING, None, (), False, "has no GPU"),
        (Found("610.1", (GPU,), ()), None, BUS, False, "left to others, in MIG mode"),
        (NOTHING, failed(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), BUS, True, "0000:3b:00.0"),
        (NOTHING, failed(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), BUS, True, "it says no"),
        (NOTHING, failed(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), (), True, "it says no"),
        (NOTHING, None, BUS, True, "the driver does not show it"),
        (Found("610.1", (), ((0, "lost"),)), None, (), True, "GPU 0 does not answer: lost"),
    ],
)
def test_only_a_node_whose_gpus_do_not_show_has_a_fault(
    found: Found, error: NvmlError | None, on_bus: tuple[str, ...], is_fault: bool, text: str
) -> None:
    absence = explain_absence(found, error, on_bus)
    assert absence.is_fault is is_fault
    assert text in absence.why


def put_on_bus(host: Path, address: str, vendor: str, kind: str, driver: str = "") -> None:
    device = host / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_gpus_are_told_from_whatever_else_is_on_the_bus(tmp_path: Path) -> None:
    assert gpus_on_bus(tmp_path) == ()
    put_on_bus(tmp_path, "0000:01:00.0", "0x10de", "0x030000", "nouveau")
    put_on_bus(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")
    put_on_bus(tmp_path, "0000:01:00.1", "0x10de", "0x040300")  # its sound
    put_on_bus(tmp_path, "0000:04:00.0", "0x10de", "0x068000")  # an NVSwitch
    put_on_bus(tmp_path, "0000:02:00.0", "0x8086", "0x030000")
    put_on_bus(tmp_path, "0000:5e:00.0", "0x10de", "0x030200", "vfio-pci")
    assert gpus_on_bus(tmp_path) == ("0000:01:00.0", "0000:3b:00.0")


def test_absence_is_told_once_and_ends_with_the_first_gpu(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    watched = make(tmp_path, driver=Driver(gpus=[], is_loaded=False))
    watched.look()
    watched.look()
    absence = watched.watch.absence
    assert absence == Absence("this node has no GPU (Driver Not Loaded)", is_fault=False)
    (record,) = [each for each in caplog.records if "no GPU" in each.message]
    assert record.levelname == "INFO"
    watched.driver.is_loaded = True
    watched.driver.gpus.append("GPU-a")
    assert watched.look() == {"GPU-a": ""}
    assert watched.watch.absence is None
    # One that was here and has gone is missed: nobody says that there is none.
    watched.driver.is_loaded = False
    watched.look()
    assert watched.watch.absence is None


def test_a_gpu_that_only_the_bus_shows_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_on_bus(tmp_path, *BUS, "0x10de", "0x030200")
    watched = make(tmp_path, driver=Driver(gpus=[]))
    watched.look()
    assert watched.watch.absence is not None
    assert watched.watch.absence.is_fault
    assert BUS[0] in caplog.text


def test_gpus_that_are_all_left_to_others_are_no_fault(tmp_path: Path) -> None:
    watched = make(tmp_path, Choice(others=frozenset({"0", "1"})))
    watched.look()
    assert watched.watch.absence == Absence(
        "all 2 GPUs of this node are left to others, in MIG mode or without own memory",
        is_fault=False,
    )
