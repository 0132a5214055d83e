"""Whose a process is and what it has loaded, read from a tree that looks like /proc."""

import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.tenants.procfs import FileId, Mount, ProcFs

UID = "0a1b2c3d-1111-2222-3333-444455556666"
CONTAINER = "c0ffee" + "0" * 58

GROUPS = {
    "systemd, containerd": "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
    f"{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
    "systemd, CRI-O": f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/"
    f"crio-{CONTAINER}.scope/container",
    "cgroupfs": f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}",
    "another cgroup namespace": f"0::/../../burstable/pod{UID}/{CONTAINER}",
    "kind": f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod"
    f"{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
    "version 1": f"12:devices:/kubepods/pod{UID}/{CONTAINER}\n1:name=systemd:/user.slice",
    "named by the tenant below": f"0::/kubepods/pod{UID}/{CONTAINER}/"
    f"podffffffff-1111-2222-3333-444455556666/{'f' * 64}",
}


def process(root: Path, pid: int, cgroup: str = "0::/", maps: str = "", mounts: str = "") -> None:
    folder = root / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(cgroup + "\n")
    (folder / "maps").write_text(maps)
    (folder / "mountinfo").write_text(mounts)
    ticks = " ".join(["S", *["0"] * 18, "4711", "0"])
    (folder / "stat").write_text(f"{pid} (a (strange) name) {ticks}\n")


@pytest.mark.parametrize("cgroup", GROUPS.values(), ids=GROUPS.keys())
def test_the_pod_and_the_container_follow_from_the_cgroup(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, cgroup)
    view = ProcFs(tmp_path).view(7)
    assert view is not None
    assert (view.pod_uid, view.container_id) == (UID, CONTAINER)


def test_static_pods_have_a_hash_for_uid(tmp_path: Path) -> None:
    process(tmp_path, 7, f"0::/kubepods/burstable/pod{'5f' * 16}/{CONTAINER}")
    view = ProcFs(tmp_path).view(7)
    assert view is not None
    assert (view.pod_uid, view.container_id) == ("5f" * 16, CONTAINER)


@pytest.mark.parametrize(
    "cgroup", ["0::/", "0::/user.slice/user-1000.slice/pod.scope", "", "0::/system.slice/podman"]
)
def test_other_processes_belong_to_no_pod(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, cgroup)
    view = ProcFs(tmp_path).view(7)
    assert view is not None
    assert (view.pod_uid, view.container_id) == ("", "")


def test_what_is_mapped_is_told_by_inode(tmp_path: Path) -> None:
    maps = (
        "7f00-7f01 r--p 00000000 fe:01 41 /usr/local/lib/aliquot/libaliquot.so\n"
        "7f01-7f02 r-xp 00001000 fe:01 42 /usr/local/lib/aliquot/libaliquot.so\n"
        "7f02-7f03 r-xp 00000000 fe:01 43 /tmp/not-libaliquot.so\n"
        "7f03-7f04 rw-s 00000000 00:1f 7 /run/aliquot/memory/usage\n"
        "7f04-7f05 rw-s 00000000 00:1f zz /run/aliquot/memory/usage\n"
        "7f05-7f06 rw-p 00000000 00:00 0 \n"
        "libaliquot\n"
    )
    process(tmp_path, 7, maps=maps)
    view = ProcFs(tmp_path).view(7)
    assert view is not None
    assert view.shims == {42}, "executable, and by its whole name"
    assert view.usages == {FileId(0, 0x1F, 7)}


def test_mounts_of_ours_are_kept(tmp_path: Path) -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:55 / /run/aliquot/memory rw - tmpfs tmpfs rw,size=64k\n"
        "3 1 8:2 /lib/aliquot/alloc/abc/usage /run/aliquot/compute rw - ext4 /dev/sda2 rw\n"
        "nonsense\n"
        "4 1 x:y / /run/aliquot/other rw - tmpfs tmpfs rw\n"
    )
    process(tmp_path, 7, mounts=mounts)
    view = ProcFs(tmp_path).view(7)
    assert view is not None
    assert view.mounts == (Mount(0, 55, "/"), Mount(8, 2, "/lib/aliquot/alloc/abc/usage"))


def test_processes_that_are_gone_are_nothing(tmp_path: Path) -> None:
    proc = ProcFs(tmp_path)
    assert proc.view(7) is None
    assert proc.program(7) is None
    process(tmp_path, 7)
    assert proc.program(7) is not None
    (tmp_path / "7" / "stat").write_text("cut off")
    assert proc.program(7) is None


def test_a_process_that_executes_another_program_is_another_one(tmp_path: Path) -> None:
    """Not the pid nor the time of its start tell that; where its code and its stack are does."""
    line = "print(open('/proc/self/stat').read(), flush=True)"
    script = f"{line}; import os, sys; os.execv(sys.executable, [sys.executable, '-c', {line!r}])"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    programs = []
    (tmp_path / "7").mkdir()
    for stat in filter(None, printed.splitlines()):
        (tmp_path / "7" / "stat").write_bytes(stat)
        programs.append(ProcFs(tmp_path).program(7))
    first, second = programs
    assert first is not None
    assert second is not None
    assert first[0] == second[0], "the same process"
    assert first != second
