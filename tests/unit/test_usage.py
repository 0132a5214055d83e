"""The usage file from outside: small enough, readable whatever a tenant has written into it."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim import usage
from shim.limits import Kind
from shim.usage import UsageError

CODE = 65521
HEADER_BYTES = 64
SLOTS = 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    usage.create(tmp_path / "usage", Kind.MEMORY, 1)
    return tmp_path / "usage"


def word(value: int) -> bytes:
    return struct.pack("<Q", value * CODE + 1)


def owner(pid: int, namespace_id: int = 1, start_id: int = 1) -> bytes:
    return word(pid << 26 | namespace_id << 12 | start_id)


def edit(path: Path, offset: int, data: bytes) -> None:
    image = bytearray(path.read_bytes())
    image[offset : offset + len(data)] = data
    path.write_bytes(image)


OWNERS_AT = HEADER_BYTES + 64
WORDS_AT = OWNERS_AT + 8 * SLOTS


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("count", range(1, 17))
def test_it_fits_into_its_tmpfs_and_has_room_for_processes(
    tmp_path: Path, kind: Kind, count: int
) -> None:
    usage.create(tmp_path / "usage", kind, count)
    assert (tmp_path / "usage").stat().st_size <= 64 * 1024
    slots = struct.unpack_from("<I", (tmp_path / "usage").read_bytes(), 24)[0]
    assert slots >= (80 if kind is Kind.COMPUTE else 470)
    if count == 1:
        assert slots == SLOTS
    found = usage.read(tmp_path / "usage", kind)
    assert len(found.devices) == count
    assert found.processes == ()


def test_anybody_may_write_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        usage.create(tmp_path / "usage", Kind.MEMORY, 1)
    finally:
        os.umask(before)
    assert (tmp_path / "usage").stat().st_mode & 0o777 == 0o666


def test_an_account_in_use_is_never_started_anew(path: Path) -> None:
    with pytest.raises(FileExistsError):
        usage.create(path, Kind.MEMORY, 1)


@pytest.mark.parametrize("count", [0, 17])
def test_so_many_gpus_there_are_not(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError):
        usage.create(tmp_path / "usage", Kind.MEMORY, count)


def test_processes_are_read_with_what_they_hold(path: Path) -> None:
    edit(path, 56, word(3))
    edit(path, OWNERS_AT, owner(7) + word(0) + owner(4_194_303, 16_383, 4_095))
    edit(path, WORDS_AT, word(1000) + word(0) + word(1 << 40))
    first, second = usage.read(path, Kind.MEMORY).processes
    assert (first.pid, first.held_bytes, first.damaged_words) == (7, (1000,), 0)
    assert (second.pid, second.namespace_id, second.start_id) == (4_194_303, 16_383, 4_095)
    assert second.held_bytes == (1 << 40,)


def test_compute_counts_are_plain(tmp_path: Path) -> None:
    path = tmp_path / "compute"
    usage.create(path, Kind.COMPUTE, 1)
    edit(path, 56, word(1))
    edit(path, OWNERS_AT, owner(7))
    for measure, value in enumerate((10**18, 5, 3)):
        edit(path, WORDS_AT + measure * SLOTS * 8, struct.pack("<Q", value))
    (process,) = usage.read(path, Kind.COMPUTE).processes
    assert process.held_bytes == ()
    assert (process.busy_ns, process.throttled_ns, process.launches) == ((10**18,), (5,), (3,))


def test_damage_is_told_not_believed(path: Path) -> None:
    edit(path, 56, word(2))
    edit(path, OWNERS_AT, owner(7) + b"damaged!")
    edit(path, WORDS_AT, b"damaged!" + word(5))
    first, second = usage.read(path, Kind.MEMORY).processes
    assert (first.pid, first.held_bytes, first.damaged_words) == (7, (0,), 1)
    assert (second.pid, second.held_bytes, second.damaged_words) == (0, (5,), 1)


def test_damaged_counters_are_none(path: Path) -> None:
    edit(path, HEADER_BYTES, b"damaged!" * 8)
    (device,) = usage.read(path, Kind.MEMORY).devices
    assert (device.peak_bytes, device.refused) == (None, None)


def test_a_damaged_mark_hides_no_process(path: Path) -> None:
    edit(path, 56, b"\0" * 8)
    edit(path, OWNERS_AT + 8 * (SLOTS - 1), owner(7))
    (process,) = usage.read(path, Kind.MEMORY).processes
    assert process.pid == 7


def test_a_process_whose_namespace_is_unknown_is_not_judged() -> None:
    unknown = usage.ProcessUsage(4_194_303, namespace_id=0, start_id=0, damaged_words=0)
    assert not unknown.is_gone()


@pytest.mark.parametrize("length", [0, 63, 64, 1000])
def test_a_short_file_is_an_error(path: Path, length: int) -> None:
    os.truncate(path, length)
    with pytest.raises(UsageError, match="short"):
        usage.read(path, Kind.MEMORY)


def test_memory_and_compute_are_not_mixed_up(path: Path) -> None:
    with pytest.raises(UsageError, match="other kind"):
        usage.read(path, Kind.COMPUTE)


def test_what_stands_in_its_place_neither_blocks_nor_leads_away(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a file"):
        usage.read(tmp_path / "pipe", Kind.MEMORY)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="link"):
        usage.read(tmp_path / "link", Kind.MEMORY)
    with pytest.raises(UsageError, match="not a file"):
        usage.read(Path("/dev/null"), Kind.MEMORY)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(position=st.integers(0, 20_000), data=st.binary(min_size=1, max_size=256))
def test_any_damage_is_an_error_or_readable(
    tmp_path_factory: pytest.TempPathFactory, position: int, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged-usage"
    path.unlink(missing_ok=True)
    usage.create(path, Kind.MEMORY, 1)
    edit(path, 56, word(8))
    edit(path, position, data)
    try:
        found = usage.read(path, Kind.MEMORY)
    except UsageError:
        return
    assert all(0 <= held < 1 << 48 for each in found.processes for held in each.held_bytes)


@given(
    value=st.integers(0, (1 << 47) - 1),
    byte=st.integers(0, 7),
    change=st.integers(1, 255),
)
@settings(derandomize=True)
def test_one_damaged_byte_never_passes_for_a_word(value: int, byte: int, change: int) -> None:
    damaged = bytearray(word(value))
    damaged[byte] ^= change
    assert (struct.unpack("<Q", damaged)[0] - 1) % CODE != 0
