"""The limits file: whole or not at all, changed in place, never more generous by accident."""

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim import limits
from shim.limits import CAP_BYTES_MAX, WHOLE, DeviceLimits, Kind, Limits, LimitsError, Policy

GPU = "GPU-12345678-9abc-def0-1234-56789abcdef0"
OTHER = "GPU-00000000-0000-0000-0000-000000000001"

FIRST = Limits((DeviceLimits(GPU, 4 << 30, share=3000),), policy=Policy.BURST, weight=3)
SECOND = Limits((DeviceLimits(GPU, 6 << 30, share=5000),), policy=Policy.FIXED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    limits.create(tmp_path / "limits", Kind.MEMORY, FIRST)
    return tmp_path / "limits"


def content(read: Limits) -> Limits:
    """Without what the file adds by itself."""
    return replace(read, generation=0, written_ns=0)


def test_what_was_written_is_read(path: Path) -> None:
    assert content(limits.read(path, Kind.MEMORY)) == FIRST


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("count", [1, 2, 16])
def test_every_field_of_every_gpu_is_kept(tmp_path: Path, kind: Kind, count: int) -> None:
    written = Limits(
        tuple(
            DeviceLimits(
                f"GPU-{number:08x}-1111-2222-3333-444444444444",
                None if number % 3 == 0 else number << 30,
                share=number * 600,
                grant=number * 500,
                grant_until_ns=number << 40,
            )
            for number in range(count)
        ),
        policy=Policy.BEST_EFFORT,
        weight=100,
    )
    limits.create(tmp_path / "limits", kind, written)
    assert content(limits.read(tmp_path / "limits", kind)) == written


def test_updates_happen_in_place(path: Path) -> None:
    """Bind mounts pin the inode: a file renamed over it would never reach a running container."""
    before = path.stat()
    for number in range(1, 6):
        limits.update(path, SECOND if number % 2 else FIRST)
        found = limits.read(path, Kind.MEMORY)
        assert content(found) == (SECOND if number % 2 else FIRST)
        assert found.generation == number + 1
    after = path.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)


def test_a_new_file_replaces_an_old_one_whole(path: Path, tmp_path: Path) -> None:
    limits.create(path, Kind.MEMORY, SECOND)
    assert content(limits.read(path, Kind.MEMORY)) == SECOND
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_as_asked_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        limits.create(tmp_path / "limits", Kind.MEMORY, FIRST, mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "limits").stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_damaged_at_its_newest_shows_what_was_before(path: Path) -> None:
    limits.update(path, SECOND)
    data = bytearray(path.read_bytes())
    data[SLOTS_AT + SLOT_BYTES + 100] ^= 1
    path.write_bytes(data)
    assert content(limits.read(path, Kind.MEMORY)) == FIRST
    limits.update(path, SECOND)
    assert content(limits.read(path, Kind.MEMORY)) == SECOND


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    position=st.integers(0, 4095),
    data=st.binary(min_size=1, max_size=64),
)
def test_damage_shows_an_error_or_what_was_once_written(
    tmp_path_factory: pytest.TempPathFactory, position: int, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged-limits"
    limits.create(path, Kind.MEMORY, FIRST)
    limits.update(path, SECOND)
    image = bytearray(path.read_bytes())
    image[position : position + len(data)] = data[: len(image) - position]
    path.write_bytes(image)
    try:
        found = limits.read(path, Kind.MEMORY)
    except LimitsError:
        return
    assert content(found) in (FIRST, SECOND)


@pytest.mark.parametrize("length", [0, 8, 127, 128, 2000, 4095])
def test_a_short_file_is_an_error(path: Path, length: int) -> None:
    os.truncate(path, length)
    with pytest.raises(LimitsError, match="short"):
        limits.read(path, Kind.MEMORY)
    with pytest.raises(LimitsError, match="short"):
        limits.update(path, SECOND)


def test_memory_and_compute_are_not_mixed_up(path: Path) -> None:
    with pytest.raises(LimitsError, match="other kind"):
        limits.read(path, Kind.COMPUTE)


GARBAGE: list[tuple[str, Any]] = [
    ("limit_bytes", -1),
    ("limit_bytes", CAP_BYTES_MAX + 1),
    ("limit_bytes", (1 << 64) - 1),
    ("limit_bytes", True),
    ("limit_bytes", "4Gi"),
    ("limit_bytes", 4.0),
    ("share", WHOLE + 1),
    ("share", -1),
    ("grant", WHOLE + 1),
    ("grant_until_ns", -1),
    ("uuid", ""),
    ("uuid", "GPU-1234"),
    ("uuid", "0"),
]


@pytest.mark.parametrize(("field", "value"), GARBAGE)
def test_garbage_is_the_writers_error(path: Path, field: str, value: Any) -> None:
    wrong = replace(FIRST, devices=(replace(FIRST.devices[0], **{field: value}),))
    with pytest.raises(LimitsError):
        limits.update(path, wrong)
    assert content(limits.read(path, Kind.MEMORY)) == FIRST


@pytest.mark.parametrize(
    "wrong",
    [
        Limits(()),
        Limits(
            tuple(DeviceLimits(f"GPU-{n:08x}-0000-0000-0000-000000000000", 1) for n in range(17))
        ),
        Limits((DeviceLimits(GPU, 1), DeviceLimits(GPU, 2))),
        replace(FIRST, weight=0),
    ],
)
def test_limits_that_make_no_sense_are_the_writers_error(path: Path, wrong: Limits) -> None:
    with pytest.raises(LimitsError):
        limits.update(path, wrong)


# --- the layout, written down a second time ----------------------------------------------------

MASK = (1 << 64) - 1
SLOTS_AT = 128
SLOT_BYTES = 1984


def checksum(hash_: int, data: bytes) -> int:
    for (word,) in struct.iter_unpack("<Q", data):
        hash_ = ((hash_ ^ word) * 0x9E3779B97F4A7C15) & MASK
        hash_ ^= hash_ >> 29
    return hash_


def header(layout: int, head_bytes: int, device_bytes: int) -> bytes:
    data = struct.pack(
        "<8s7I21I",
        *(b"ALIQLIM\0", layout, int(Kind.MEMORY), 4096, SLOTS_AT, SLOT_BYTES),
        *(head_bytes, device_bytes, *[0] * 21),
    )
    return data + struct.pack("<Q", checksum(len(data), data))


def slot(sequence: int, body: bytes) -> bytes:
    start = checksum(0, struct.pack("<Q", sequence))
    data = struct.pack("<QQ", sequence, checksum(start, body)) + body
    return data.ljust(SLOT_BYTES, b"\0")


def doctored(path: Path, layout: int) -> None:
    """A file of shorter records: no generation in the head, no deadline and no room in a device."""
    body = struct.pack("<4I", 1, Policy.BURST, 7, 0)
    body += bytes.fromhex(GPU[4:].replace("-", "")) + struct.pack("<QII", 5 << 30, 2500, 0)
    body += b"\0" * 32 * 15
    data = header(layout, 16, 32) + slot(9, body)
    path.write_bytes(data.ljust(4096, b"\0"))


def test_the_layout_before_this_one_is_read_and_updated_as_it_is(path: Path) -> None:
    layout = struct.unpack_from("<I", path.read_bytes(), 8)[0]
    doctored(path, layout - 1)
    expected = Limits((DeviceLimits(GPU, 5 << 30, share=2500),), policy=Policy.BURST, weight=7)
    assert content(limits.read(path, Kind.MEMORY)) == expected

    header_before = path.read_bytes()[:SLOTS_AT]
    granted = replace(SECOND.devices[0], grant=8000, grant_until_ns=123)
    limits.update(path, replace(SECOND, devices=(granted,)))
    # It has no place for a deadline, and a grant without one has run out.
    expected = replace(SECOND, devices=(replace(granted, grant_until_ns=0),))
    assert content(limits.read(path, Kind.MEMORY)) == expected
    assert path.read_bytes()[:SLOTS_AT] == header_before


@pytest.mark.parametrize("step", [-2, 1, 2])
def test_layouts_further_away_are_refused(path: Path, step: int) -> None:
    layout = struct.unpack_from("<I", path.read_bytes(), 8)[0]
    doctored(path, (layout + step) % (1 << 32))
    with pytest.raises(LimitsError, match="another version"):
        limits.read(path, Kind.MEMORY)
    with pytest.raises(LimitsError, match="another version"):
        limits.update(path, SECOND)
