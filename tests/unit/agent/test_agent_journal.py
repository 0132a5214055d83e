import errno
import logging
import os
from pathlib import Path

import pytest

from deviceplugin.booking import journal as module
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.ledger import Allocation, Owner
from tests.unit.agent.agent_node import MEMORY, UNIT, Node, refused, uuid


def _allocation(number: int) -> Allocation:
    owner = Owner("default", f"pod-{number}", "main", f"uid-{number}")
    return Allocation(MEMORY, frozenset({f"m-{uuid(0)}-{number}"}), (uuid(0),), UNIT, owner)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def _written(path: Path, count: int) -> bytes:
    journal = Journal(path)
    journal.open()
    for number in range(count):
        journal.record([_allocation(number)])
    journal.close()
    return path.read_bytes()


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


def test_a_record_that_a_crash_cut_short_is_dropped_wherever_it_was_cut(path: Path) -> None:
    whole = _written(path, 3)
    before = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(before, len(whole)):
        path.write_bytes(whole[:length])
        assert _read(path) == [_allocation(0), _allocation(1)]


def test_a_torn_record_with_its_end_but_not_its_middle_is_dropped(path: Path) -> None:
    whole = _written(path, 3)
    path.write_bytes(whole[:-60] + bytes(40) + whole[-20:])
    assert _read(path) == [_allocation(0), _allocation(1)]


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
    assert path.stat().st_size < module.SPARE_RECORDS * 600
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
        self._write = os.write
        monkeypatch.setattr(module.os, "write", self.write)

    def write(self, descriptor: int, content: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = content[: self.room]
        self.room -= len(part)
        return self._write(descriptor, part)


@pytest.mark.parametrize("room", [0, 1, 50])
def test_on_a_full_disk_nothing_is_half_recorded(
    path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    journal.open()
    journal.record([_allocation(0)])
    before = path.read_bytes()
    disk = FullDisk(monkeypatch, room)
    with pytest.raises(JournalError, match="No space left on device; make room"):
        journal.record([_allocation(1)])
    assert path.read_bytes() == before
    disk.room = 1 << 20
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
    disk.room = 1 << 20
    node.kubelet.listing()
    assert node.gpus_of(node.run(memory=12, compute=80)) == node.gpus_of(pod)


def test_a_resize_that_cannot_be_written_down_changes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.run(memory=4, compute=20)
    devices = node.allocator.devices(MEMORY)
    FullDisk(monkeypatch, 0)
    assert "No space left" in refused(lambda: node.allocator.resize(pod.uid, "main", 6, 10))
    (held,) = node.allocator.allocations()
    assert (held.memory_units, held.compute_percent) == (4, 20)
    assert node.allocator.devices(MEMORY) == devices


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
    assert node.allocator.resize(pod.uid, "main", 7, 40).changed
