"""What metrics read from a container's files, from its allocation on."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.telemetry.readings import read_all
from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits

GIB = 1 << 30
GPUS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{digit}" for digit in "ab")
KEY = ContainerKey("ns", "pod", "main")


@pytest.fixture
def allocation(tmp_path: Path) -> ContainerAllocation:
    devices = tuple(DeviceLimits(gpu, 4 * GIB, share=3000) for gpu in GPUS)
    for name, kind in (("memory", Kind.MEMORY), ("compute", Kind.COMPUTE)):
        (tmp_path / name).mkdir()
        limits.create(tmp_path / name / "limits", kind, Limits(devices))
        usage.create(tmp_path / name / "usage", kind, len(devices))
    return ContainerAllocation(
        id="t1",
        key=KEY,
        pod_uid="uid",
        gpus=GPUS,
        memory_units=32,
        compute_percent=60,
        whole=False,
        policy="burst",
        weight=1,
        memory_limits=tmp_path / "memory" / "limits",
        memory_usage=tmp_path / "memory" / "usage",
        compute_limits=tmp_path / "compute" / "limits",
        compute_usage=tmp_path / "compute" / "usage",
        started=True,
        planned=None,
        member=None,
    )


def test_a_container_that_has_used_nothing_yet_is_there(allocation: ContainerAllocation) -> None:
    first, second = read_all([allocation])
    assert (first.gpu, second.gpu) == GPUS
    assert first.key == KEY
    assert first.memory_limit_bytes == 4 * GIB
    assert (first.memory_used_bytes, first.memory_peak_bytes, first.memory_refusals) == (0, 0, 0)
    assert first.compute_share == 0.3
    assert (first.busy_s, first.throttled_s, first.launches) == (0, 0, 0)


def test_limits_are_those_of_now(allocation: ContainerAllocation) -> None:
    assert allocation.memory_limits is not None
    grown = Limits(tuple(DeviceLimits(gpu, 6 * GIB) for gpu in GPUS))
    limits.update(allocation.memory_limits, grown)
    assert [each.memory_limit_bytes for each in read_all([allocation])] == [6 * GIB] * 2


def test_no_cap_and_no_file_are_not_known(allocation: ContainerAllocation) -> None:
    assert allocation.memory_limits is not None
    limits.update(allocation.memory_limits, Limits(tuple(DeviceLimits(g, None) for g in GPUS)))
    assert read_all([allocation])[0].memory_limit_bytes is None
    bare = replace(allocation, memory_limits=None, memory_usage=None, compute_limits=None)
    reading = read_all([bare])[0]
    assert reading.memory_used_bytes is None
    assert reading.compute_share == 0.3, "as allocated"


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, bytes(65536)])
def test_damaged_accounts_leave_only_what_is_ours(
    allocation: ContainerAllocation, content: bytes
) -> None:
    for path in (allocation.memory_usage, allocation.compute_usage):
        assert path is not None
        path.write_bytes(content)
    reading = read_all([allocation])[0]
    assert reading.memory_limit_bytes == 4 * GIB
    assert (reading.memory_used_bytes, reading.memory_peak_bytes) == (None, None)
    assert (reading.busy_s, reading.launches) == (None, None)


def test_a_file_for_fewer_gpus_than_allocated_is_no_trap(
    allocation: ContainerAllocation,
) -> None:
    """A tenant may put any well-formed file in the place of its own."""
    for path, kind in (
        (allocation.memory_usage, Kind.MEMORY),
        (allocation.compute_usage, Kind.COMPUTE),
    ):
        assert path is not None
        path.unlink()
        usage.create(path, kind, 1)
    first, second = read_all([allocation])
    assert (first.memory_used_bytes, first.launches) == (0, 0)
    assert (second.memory_used_bytes, second.launches) == (None, None)


@pytest.mark.parametrize("key", [None, ContainerKey("ns", "pod", "")])
def test_who_has_no_name_yet_has_no_series(
    allocation: ContainerAllocation, key: ContainerKey | None
) -> None:
    assert read_all([replace(allocation, key=key)]) == []
