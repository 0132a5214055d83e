import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.booking import journal as module
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.ledger import Allocation, Owner
from tests.unit.agent.agent_node import MEMORY, UNIT, Node, caps, refused, uuid


def _allocation(number: int) -> Allocation:
    owner = Owner("default", f"pod-{number}", "main", f"uid-{number}")
    return Allocation(MEMORY, frozenset({f"m-{uuid(0)}-{number}"}), (uuid(0),), UNIT, owner)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def _records(path: Path) -> bytes:
    """Without the zeros that later records are written over."""
    return path.read_bytes().rstrip(b"\0")


def _written(path: Path, count: int) -> bytes:
    journal = Journal(path)
    journal.open()
    for number in range(count):
        journal.record([_allocation(number)])
    journal.close()
    return _records(path)


def _read(path: Path) -> list[Allocation]:
    journal = Journal(path)
    try:
        return journal.open()
    finally:
        journal.close()


def test_what_was_recorded_is_there_again(path: Path) -> None:
    journal = Journal(path)
    assert journal.open() == []
    journal.record([_allocation(0), _allocation(1)])
    journal.record([_allocation(2)], [_allocation(0).name])
    journal.close()
    assert _read(path) == [_allocation(1), _allocation(2)]


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_record_that_a_crash_cut_short_is_dropped_wherever_it_was_cut(
    path: Path, zeros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESERVE_BYTES", 4096)  # each of hundreds of files has so many
    whole = _written(path, 3)
    before = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(before, len(whole)):
        path.write_bytes(whole[:length] + bytes(zeros))
        assert _read(path) == [_allocation(0), _allocation(1)]


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_torn_record_with_its_end_but_not_its_middle_is_dropped(path: Path, zeros: int) -> None:
    whole = _written(path, 3)
    path.write_bytes(whole[:-60] + bytes(40) + whole[-20:] + bytes(zeros))
    assert _read(path) == [_allocation(0), _allocation(1)]


def test_records_are_written_over_zeros_that_are_on_disk_already(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the file grows, which costs a file system more than a write, once in many records."""
    monkeypatch.setattr(module, "RESERVE_BYTES", 2048)
    journal = Journal(path)
    journal.open()
    sizes = []
    for number in range(100):
        journal.record([_allocation(number)])
        sizes.append(path.stat().st_size)
    assert 2 <= len(set(sizes)) <= 25
    journal.close()
    assert _read(path) == [_allocation(number) for number in range(100)]


def test_what_is_recorded_is_synced_before_it_is_answered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    journal.open()
    synced: list[bytes] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def noted(descriptor: int, real: Callable[[int], None] = real) -> None:
            real(descriptor)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                synced.append(_records(path))

        monkeypatch.setattr(module.os, name, noted)
    for number in range(3):
        journal.record([_allocation(number)])
        assert synced[-1] == _records(path)
    journal.close()


@pytest.mark.parametrize("where", ["first", "middle"])
def test_other_damage_moves_it_aside_with_a_log_line(
    path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = bytearray(_written(path, 3))
    whole[3 if where == "first" else len(whole) // 2] ^= 1
    path.write_bytes(whole)
    journal = Journal(path)
    with caplog.at_level(logging.ERROR):
        assert journal.open() == []
    assert journal.was_damaged
    assert "damaged" in caplog.text
    journal.record([_allocation(9)])
    journal.close()
    assert _read(path) == [_allocation(9)]
    (aside,) = path.parent.glob("journal.damaged-*")
    assert aside.read_bytes() == bytes(whole)


@pytest.mark.parametrize("content", [b"garbage", b"garbage\n", b"\n", b"\0" * 4096, b"\xff\n" * 9])
def test_garbage_is_moved_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert _read(path) == []
    assert list(path.parent.glob("journal.damaged-*"))


def test_it_does_not_grow_for_ever(path: Path) -> None:
    journal = Journal(path)
    journal.open()
    for _ in range(3 * module.SPARE_RECORDS):
        journal.record([_allocation(1)])
        journal.record([], [_allocation(1).name])
    assert len(_records(path)) < module.SPARE_RECORDS * 600
    assert path.stat().st_size < module.SPARE_RECORDS * 600 + 2 * module.RESERVE_BYTES
    journal.close()
    assert _read(path) == []


def test_a_rewrite_that_fails_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.open()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "_rewrite", full)
    for _ in range(module.SPARE_RECORDS + 10):
        journal.record([_allocation(1)])
    journal.close()
    monkeypatch.undo()
    assert _read(path) == [_allocation(1)]


def test_a_rewritten_journal_is_on_disk_before_it_has_its_name_and_then_the_name_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(path, 3)
    happened: list[str] = []
    sync, rename = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        sync(descriptor)
        happened.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def noted_rename(old: Path, new: Path) -> Path:
        happened.append(f"rename {old.name} to {new.name}")
        return rename(old, new)

    monkeypatch.setattr(module.os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    journal = Journal(path)
    journal.open()
    journal.close()
    assert happened == ["sync journal.new", "rename journal.new to journal", "sync state"]


def test_a_folder_that_cannot_be_synced_loses_no_later_record(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "_sync_folder", broken)
    for number in range(3):
        journal = Journal(path)
        journal.open()
        assert not journal.was_damaged
        journal.record([_allocation(number)])
        journal.record((), [])
        journal.close()
    assert _read(path) == [_allocation(number) for number in range(3)]


@pytest.mark.parametrize("torn", [b"", b'12345678 {"put":[', b"12345678 torn\n"])
def test_on_a_full_disk_it_is_opened_as_it_is(
    path: Path, torn: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _written(path, 3)
    path.write_bytes(whole + torn + bytes(4096))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(path)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_rewrite", full)
        assert journal.open() == [_allocation(0), _allocation(1), _allocation(2)]
        journal.record([_allocation(3)], [_allocation(0).name])
    journal.close()
    assert not journal.was_damaged
    assert _read(path) == [_allocation(1), _allocation(2), _allocation(3)]


def test_what_a_crash_left_behind_on_a_full_disk_does_not_add_up_with_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One torn record at the end is a crash's; two would be damage."""
    monkeypatch.setattr(module, "RESERVE_BYTES", 64)
    whole = _written(path, 3)
    path.write_bytes(whole + b"12345678 " + 4096 * b"x" + b"\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(path)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_rewrite", full)
        journal.open()
        journal.record([_allocation(3)])
    journal.close()
    torn = bytearray(path.read_bytes())
    torn[len(whole) + 20 : len(whole) + 60] = bytes(40)
    path.write_bytes(torn)
    assert _read(path) == [_allocation(number) for number in range(3)]


def test_on_a_full_disk_none_is_begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDisk(monkeypatch, 0)
    with pytest.raises(JournalError, match="No space left on device; make room"):
        Journal(path).open()
    assert not path.exists()


def test_two_agents_cannot_have_it_at_once(path: Path) -> None:
    first = Journal(path)
    first.open()
    with pytest.raises(JournalError, match="only one"):
        Journal(path).open()
    first.close()
    assert _read(path) == []


class FullDisk:
    """A disk that takes a few bytes more, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write = os.pwrite
        monkeypatch.setattr(module.os, "pwrite", self.write)

    def write(self, descriptor: int, content: memoryview, at: int) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = content[: self.room]
        self.room -= len(part)
        return self._write(descriptor, part, at)


@pytest.mark.parametrize("room", [0, 1, 50])
def test_on_a_full_disk_nothing_is_half_recorded(
    path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    journal.open()
    journal.record([_allocation(0)])
    before = _records(path)
    disk = FullDisk(monkeypatch, room)
    for _ in range(2):  # in the zeros that are there, and where they have to be written first
        with pytest.raises(JournalError, match="No space left on device; make room"):
            journal.record([_allocation(1)])
        assert _records(path) == before
    disk.room = 1 << 30
    journal.record([_allocation(2)])
    journal.close()
    assert _read(path) == [_allocation(0), _allocation(2)]


@pytest.mark.parametrize("room", [0, 50])
def test_an_allocation_that_cannot_be_written_down_is_refused(
    node: Node, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.run()
    held = node.allocator.allocations()
    disk = FullDisk(monkeypatch, room)
    text = refused(lambda: node.run(memory=5, compute=25))
    assert "cannot be written down" in text
    assert "No space left on device" in text
    assert node.allocator.allocations() == held
    assert len(list((node.folder / "state" / "alloc").iterdir())) == 2
    disk.room = 1 << 30
    node.kubelet.listing()
    assert node.gpus_of(node.run(memory=12, compute=80)) == node.gpus_of(pod)


def test_a_resize_that_cannot_be_written_down_changes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.run(memory=4, compute=20)
    devices = node.allocator.devices(MEMORY)
    FullDisk(monkeypatch, 0)
    assert "No space left" in refused(lambda: node.allocator.resize(pod.view(), "main", 6, 10))
    (held,) = node.allocator.allocations()
    assert (held.memory_units, held.compute_percent) == (4, 20)
    assert node.allocator.devices(MEMORY) == devices


def test_a_shrink_that_cannot_be_written_down_leaves_the_limits_as_they_were(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.run(memory=4, compute=20)
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        assert "No space left" in refused(lambda: node.allocator.resize(pod.view(), "main", 2, 10))
    assert caps(node, pod) == ([4 * UNIT], [2000])
    node.allocator.resize(pod.view(), "main", 2, 10)
    assert caps(node, pod) == ([2 * UNIT], [1000])


def test_while_the_disk_is_full_nothing_is_freed_and_who_is_found_is_booked(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.run("found", memory=8, compute=40)
    with monkeypatch.context() as patch:
        # The kubelet does not answer yet, so nobody knows who is there.
        patch.setattr(node.kubelet, "list_fails", True)
        node.restart_agent(forget=True)
    ended = node.run("ended", memory=4, compute=20)
    node.kubelet.end(ended)
    names = node.files.names()
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        node.reconcile()
        held = {
            each.key.pod: each.memory_units for each in node.allocator.allocations() if each.key
        }
        assert held == {"found": 8, "ended": 4}
        assert node.files.names() == names
    node.reconcile()
    assert [each.key.pod for each in node.allocator.allocations() if each.key] == ["found"]


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_without_a_journal_the_kubelets_records_do(node: Node, damage: str) -> None:
    pod = node.run("trainer", memory=6, compute=40, policy="best-effort", weight=3)
    node.run("whole", memory=0, compute=100)
    before = {each.key: each for each in node.allocator.allocations()}
    node.journal.close()
    path = node.folder / "state" / "journal"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"\x13" * 1000)
    node.restart_agent()
    after = {each.key: each for each in node.allocator.allocations()}
    assert after.keys() == before.keys()
    for key, now in after.items():
        assert now.memory_limits == before[key].memory_limits
        assert now.pod_uid == before[key].pod_uid
        assert (now.whole, now.policy, now.weight) == (
            before[key].whole,
            before[key].policy,
            before[key].weight,
        )
    assert node.allocator.resize(pod.view(), "main", 7, 40).changed
