import errno
import os
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from deviceplugin.booking.ledger import Allocation
from deviceplugin.booking.sharing import Sharing
from deviceplugin.container import usagestore
from deviceplugin.container.files import REMOVED_AT_ONCE, ContainerFiles, UsageStore
from deviceplugin.container.gpuaccess import (
    CdiAccess,
    RuntimeAccess,
)
from deviceplugin.container.grant import Grant
from deviceplugin.container.usagestore import Mounter
from deviceplugin.gpus.hardware import Hardware
from shim import limits, usage
from shim.limits import Kind
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, Pod, gpu, refused, uuid


def _grant(node: Node, pod: Pod, resource: str) -> Grant:
    return node.kubelet.grants[pod.uid, "main", resource]


def _allocation() -> Allocation:
    return Allocation(MEMORY, frozenset({f"m-{uuid(0)}-1"}), (uuid(0),), UNIT)


def test_both_halves_are_answered_alike_but_for_their_own_folders(node: Node) -> None:
    pod = node.run()
    memory, compute = _grant(node, pod, MEMORY), _grant(node, pod, COMPUTE)
    assert (
        memory.env
        == compute.env
        == {
            "NVIDIA_VISIBLE_DEVICES": uuid(0),
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        }
    )
    shared = set(memory.mounts) & set(compute.mounts)
    assert {str(each.container) for each in shared} == {
        "/usr/local/lib/aliquot/libaliquot.so",
        "/etc/ld.so.preload",
    }
    own = {str(each.container): each.read_only for each in memory.mounts if each not in shared}
    assert own == {"/etc/aliquot/memory/limits": True, "/run/aliquot/memory": False}
    own = {str(each.container): each.read_only for each in compute.mounts if each not in shared}
    assert own == {"/etc/aliquot/compute/limits": True, "/run/aliquot/compute": False}
    for mount in (*memory.mounts, *compute.mounts):
        assert mount.host.exists()
    (preload,) = [each for each in shared if each.container.name == "ld.so.preload"]
    assert preload.host.read_text() == "/usr/local/lib/aliquot/libaliquot.so\n"


def test_any_user_of_a_container_can_write_its_account_and_nobody_its_limits(node: Node) -> None:
    pod = node.run()
    for mount in _grant(node, pod, MEMORY).mounts:
        if mount.container.match("/etc/aliquot/memory/limits"):
            assert mount.host.stat().st_mode & 0o777 == 0o644
        if mount.container.match("/run/aliquot/memory"):
            assert (mount.host / "usage").stat().st_mode & 0o777 == 0o666
            assert usage.read(mount.host / "usage", Kind.MEMORY).processes == ()


def test_an_upgrade_leaves_the_library_of_running_containers_alone(node: Node) -> None:
    pod = node.run("old")
    (old,) = [m.host for m in _grant(node, pod, MEMORY).mounts if m.container.suffix == ".so"]
    inode = old.stat().st_ino
    node.shim.write_bytes(b"a newer library")
    node.restart_agent()
    assert (old.stat().st_ino, old.read_bytes()) == (inode, b"not really a library")
    new_pod = node.run("new")
    (new,) = [m.host for m in _grant(node, new_pod, MEMORY).mounts if m.container.suffix == ".so"]
    assert new != old
    assert new.read_bytes() == b"a newer library"
    node.kubelet.end(pod)
    node.kubelet.listing()
    node.restart_agent()
    assert (old.exists(), new.exists()) == (False, True)


def test_a_forgotten_containers_library_stays(node: Node) -> None:
    pod = node.run("old")
    (old,) = [m.host for m in _grant(node, pod, MEMORY).mounts if m.container.suffix == ".so"]
    node.shim.write_bytes(b"a newer library")
    node.restart_agent(forget=True)
    assert old.exists()


def test_what_a_crash_left_behind_is_swept_at_the_next_start(node: Node) -> None:
    node.files.create(_allocation())
    folder = node.files.folder(_allocation())
    assert folder.exists()
    node.restart_agent()
    assert not folder.exists()


def test_a_torn_update_of_limits_is_healed_at_the_next_start(node: Node) -> None:
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", 8)
    (held,) = node.allocator.allocations()
    assert held.memory_limits is not None
    content = bytearray(held.memory_limits.read_bytes())
    # The newer slot was being written when the writer died: the older one counts again.
    first, second = (limits_sequence(content, at) for at in (128, 2112))
    at = 128 if first > second else 2112
    content[at + 100] ^= 0xFF
    inode = held.memory_limits.stat().st_ino
    with held.memory_limits.open("r+b") as file:
        file.write(content)
    assert limits.read(held.memory_limits, Kind.MEMORY).devices[0].limit_bytes == 4 * UNIT
    node.restart_agent()
    assert limits.read(held.memory_limits, Kind.MEMORY).devices[0].limit_bytes == 8 * UNIT
    assert held.memory_limits.stat().st_ino == inode


def limits_sequence(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 8], "little")


@pytest.mark.parametrize("content", [b"", b"short", bytes(4096), b"\xff" * 4096])
def test_limits_that_are_garbage_are_made_again(node: Node, content: bytes) -> None:
    pod = node.run(memory=4, compute=20)
    (held,) = node.allocator.allocations()
    assert held.memory_limits is not None
    held.memory_limits.write_bytes(content)
    node.kubelet.start(pod)
    assert limits.read(held.memory_limits, Kind.MEMORY).devices[0].limit_bytes == 4 * UNIT


@pytest.mark.parametrize("damage", ["truncated", "filled", "forged", "removed", "a link", "a pipe"])
def test_whatever_a_tenant_does_to_its_account_the_next_start_has_a_new_one(
    node: Node, damage: str, tmp_path: Path
) -> None:
    pod = node.run()
    (held,) = node.allocator.allocations()
    path = held.memory_usage
    assert path is not None
    precious = tmp_path / "precious"
    precious.write_text("of the host")
    path.unlink()
    if damage == "truncated":
        path.write_bytes(b"")
    elif damage == "filled":
        path.write_bytes(b"\xff" * 65536)
        (path.parent / "more").mkdir()
        (path.parent / "more" / "files").write_bytes(b"x" * 1000)
    elif damage == "forged":
        path.write_bytes(b"ALIQUSE" + bytes(1000))
    elif damage == "a link":
        path.symlink_to(precious)
    elif damage == "a pipe":
        os.mkfifo(path)
    node.kubelet.start(pod)
    assert usage.read(path, Kind.MEMORY).processes == ()
    assert [each.name for each in path.parent.iterdir()] == ["usage"]
    assert precious.read_text() == "of the host"


def test_whoever_sees_that_a_container_has_started_finds_its_new_account(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch over tenants knows containers by their files, and looks again when one starts."""
    pod = node.run()
    (before,) = node.allocator.allocations()
    renewed = []
    refresh = usagestore.refresh

    def renewing(*details: Any) -> None:
        (during,) = node.allocator.allocations()
        renewed.append(during.starts)
        refresh(*details)

    monkeypatch.setattr(usagestore, "refresh", renewing)
    node.kubelet.start(pod)
    (after,) = node.allocator.allocations()
    assert renewed == [before.starts, before.starts + 1], "none counts before it is made"
    assert after.starts == before.starts + 2, "both halves"
    assert after != before


def test_files_that_cannot_be_made_refuse_the_allocation_and_leave_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    monkeypatch.setattr(usagestore.usage, "create", full)
    text = refused(lambda: node.run())
    assert "No space left on device" in text
    assert "/somewhere" in text
    assert not list((node.folder / "state" / "alloc").iterdir())
    monkeypatch.undo()
    node.kubelet.listing()
    assert node.run()
    assert len(node.allocator.allocations()) == 1


def test_files_that_cannot_be_completed_are_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.pod()
    node.kubelet.add(pod)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(usagestore.usage, "create", full)
        assert "No space left" in refused(lambda: node.kubelet.start(pod))
    node.kubelet.start(pod)
    assert [each.started for each in node.allocator.allocations()] == [True]


class Mounts:
    """What a kernel would have mounted. A mount goes with its folder when that is renamed, so it is
    known by the folder's inode."""

    def __init__(self) -> None:
        self._inodes: dict[int, Path] = {}
        self.mounter = Mounter(self.mount, self.unmount, self.is_mounted)

    @property
    def there(self) -> list[Path]:
        """Where each was mounted."""
        return list(self._inodes.values())

    def mount(self, path: Path) -> None:
        self._inodes[path.stat().st_ino] = path

    def unmount(self, path: Path) -> None:
        del self._inodes[path.stat().st_ino]

    def is_mounted(self, path: Path) -> bool:
        return path.exists() and path.stat().st_ino in self._inodes

    def lose_all(self) -> None:
        self._inodes.clear()


def _files(folder: Path, mounts: Mounts) -> ContainerFiles:
    shim = folder / "shim.so"
    shim.write_bytes(b"library")
    files = ContainerFiles(
        folder / "state", shim, RuntimeAccess(), UsageStore.TMPFS, mounts.mounter
    )
    files.install()
    return files


def test_each_account_has_a_tmpfs_of_its_own_for_as_long_as_it_is_needed(tmp_path: Path) -> None:
    mounts = Mounts()
    files = _files(tmp_path, mounts)
    allocation = _allocation()
    files.create(allocation)
    place = files.folder(allocation) / "usage"
    assert mounts.there == [place]
    files.ensure(allocation)
    files.refresh_usage(allocation)
    assert mounts.there == [place]
    # After a reboot the mount is gone and the folder is not.
    mounts.lose_all()
    files.ensure(allocation)
    assert mounts.there == [place]
    files.set_aside(allocation.name)
    assert not files.folder(allocation).exists()
    files.clear()
    assert mounts.there == []
    assert not list((tmp_path / "state" / "ended").iterdir())


def test_whoever_starts_goes_before_the_removal_of_what_others_left(tmp_path: Path) -> None:
    files = _files(tmp_path, Mounts())
    for number in range(2 * REMOVED_AT_ONCE):
        (tmp_path / "state" / "ended" / f"{number}").mkdir()
    left: list[int] = []
    files.clear(lambda: left.append(len(list((tmp_path / "state" / "ended").iterdir()))))
    assert left == [2 * REMOVED_AT_ONCE, REMOVED_AT_ONCE]


def test_a_tmpfs_that_cannot_be_mounted_leaves_nothing(tmp_path: Path) -> None:
    def forbidden(path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    mounts = Mounts()
    mounts.mounter = Mounter(forbidden, mounts.unmount, mounts.is_mounted)
    files = _files(tmp_path, mounts)
    with pytest.raises(PermissionError):
        files.create(_allocation())
    assert not files.folder(_allocation()).exists()


def test_files_of_ended_containers_are_taken_away_when_nobody_waits_for_it(node: Node) -> None:
    mounts = Mounts()
    node.files.usage_store, node.files.mounter = UsageStore.TMPFS, mounts.mounter
    ended = node.run(memory=16, compute=100)
    before = set(mounts.there)
    node.kubelet.end(ended)
    node.clock.now_s += 10
    # The same ids, and so folders of the same names.
    pod = node.run(memory=16, compute=100)
    assert node.kubelet.ids(pod, MEMORY)
    aside = node.folder / "state" / "ended"
    assert len(list(aside.iterdir())) == 2
    assert set(mounts.there) == before
    assert len(mounts.there) == 4, "nothing is unmounted while a container's start waits"

    asked: list[bool] = []

    def unmount(path: Path) -> None:
        mounts.unmount(path)
        other = Thread(target=node.allocator.devices, args=(MEMORY,), daemon=True)
        other.start()
        other.join(10)
        asked.append(not other.is_alive())

    node.files.mounter = Mounter(mounts.mount, unmount, mounts.is_mounted)
    node.reconcile()
    assert asked == [True, True], "others are answered meanwhile"
    assert len(mounts.there) == 2
    assert not list(aside.iterdir())
    for mount in (*_grant(node, pod, MEMORY).mounts, *_grant(node, pod, COMPUTE).mounts):
        assert mount.host.exists()


def nest(folder: Path, depth: int) -> None:
    """Folders in each other, with a file and a link in each; too deep to be named by a path."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT, dir_fd=here))
        os.symlink("/", "link", dir_fd=here)
        os.mkdir("folder", dir_fd=here)
        inner = os.open("folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_nothing_that_a_tenant_leaves_keeps_the_files_of_others(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu(0))
    files = node.files
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    for name in ("deep-1", "linked-2", "plain-3"):
        (files.root / "ended" / name / "usage").mkdir(parents=True)
    nest(files.root / "ended" / "deep-1" / "usage", 3000)
    (files.root / "ended" / "linked-2" / "usage" / "link").symlink_to(precious)
    files.clear()
    assert list((files.root / "ended").iterdir()) == []
    assert (precious / "file").exists()


def test_what_is_too_much_to_remove_at_once_is_removed_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, gpu(0))
    ended = node.files.root / "ended"
    for name in ("deep-1", "plain-2"):
        (ended / name / "usage").mkdir(parents=True)
    nest(ended / "deep-1" / "usage", 3)
    monkeypatch.setattr(usagestore, "REMOVING_S", 0.0)
    node.files.clear()
    assert [each.name for each in ended.iterdir()] == ["deep-1"]
    for _ in range(6):
        node.files.clear()
    assert list(ended.iterdir()) == []


def test_a_folder_that_cannot_be_set_aside_is_removed_at_once(tmp_path: Path) -> None:
    mounts = Mounts()
    files = _files(tmp_path, mounts)
    files.create(_allocation())
    (tmp_path / "state" / "ended").rmdir()
    files.create(_allocation())
    assert mounts.there == [files.folder(_allocation()) / "usage"]
    files.set_aside(_allocation().name)
    files.set_aside(_allocation().name)
    assert mounts.there == []
    assert not files.folder(_allocation()).exists()


def test_an_uninstall_leaves_nothing_on_the_node(tmp_path: Path) -> None:
    mounts = Mounts()
    files = _files(tmp_path, mounts)
    files.create(_allocation())
    files.access = CdiAccess(tmp_path / "cdi", tmp_path)
    files.access.prepare(Hardware((gpu(0),)))
    files.create(_allocation())
    (tmp_path / "state/simulated").mkdir()
    (tmp_path / "state/simulated/libcuda.so.1").touch()
    assert files.uninstall() == []
    assert mounts.there == []
    assert not (tmp_path / "state").exists()
    assert not list((tmp_path / "cdi").iterdir())


def test_an_uninstall_that_was_interrupted_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _files(tmp_path, Mounts())
    root = tmp_path / "state"
    for name in ("journal", "journal.lock", "gpu-numbers", ".arbiter"):
        (root / name).touch()
    unlink = Path.unlink

    def interrupted(path: Path, missing_ok: bool = False) -> None:
        if path.name == ".arbiter":
            raise OSError(errno.EIO, "Input/output error", str(path))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(OSError, match=r"\.arbiter"):
            files.uninstall()
    assert not files.is_foreign()
    assert files.uninstall() == []
    assert not root.exists()


def test_an_uninstall_takes_nothing_of_others(tmp_path: Path) -> None:
    """Also beside ours, and in folders that are named as ours are."""
    files = _files(tmp_path, Mounts())
    files.install()
    files.create(_allocation())
    root = tmp_path / "state"
    others = [root / "thesis.txt", root / "alloc/mine", root / "lib/libc.so.6", root / "lib/so/x"]
    for each in others:
        each.parent.mkdir(exist_ok=True)
        each.write_text("dear")
    assert files.uninstall() == ["alloc", "lib", "thesis.txt"]
    assert {each for each in root.rglob("*") if each.is_file()} == set(others)


def test_an_administrators_way_out_is_honoured_only_where_allowed(node: Node) -> None:
    node.sharing = Sharing(shim_off_namespaces=frozenset({"trusted"}))
    node.restart_agent()
    for namespace, wanted in (("trusted", False), ("default", True)):
        pod = node.pod(namespace=namespace)
        view = pod.view()
        assert view.request is not None
        node.pods.views[pod.namespace, pod.name] = replace(
            view, request=replace(view.request, shim_off=True)
        )
        node.kubelet.run(pod)
        for resource in (MEMORY, COMPUTE):
            paths = {str(each.container) for each in _grant(node, pod, resource).mounts}
            assert ("/etc/ld.so.preload" in paths) is wanted
