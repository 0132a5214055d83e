"""Whose a process is and what it has loaded, read from a tree that looks like /proc."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from deviceplugin.tenants.procfs import MOST_BYTES, FileId, Mount, ProcessView, ProcFs

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


def view_of(root: Path, pid: int) -> ProcessView | None:
    proc = ProcFs(root)
    status = proc.status(pid)
    owner = proc.owner(pid, status) if status is not None else None
    return proc.view(owner, status) if owner is not None and status is not None else None


@pytest.mark.parametrize("cgroup", GROUPS.values(), ids=GROUPS.keys())
def test_the_pod_and_the_container_follow_from_the_cgroup(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, cgroup)
    view = view_of(tmp_path, 7)
    assert view is not None
    assert (view.pod_uid, view.container_id) == (UID, CONTAINER)


def test_static_pods_have_a_hash_for_uid(tmp_path: Path) -> None:
    process(tmp_path, 7, f"0::/kubepods/burstable/pod{'5f' * 16}/{CONTAINER}")
    view = view_of(tmp_path, 7)
    assert view is not None
    assert (view.pod_uid, view.container_id) == ("5f" * 16, CONTAINER)


@pytest.mark.parametrize(
    "cgroup", ["0::/", "0::/user.slice/user-1000.slice/pod.scope", "", "0::/system.slice/podman"]
)
def test_other_processes_belong_to_no_pod(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 7, cgroup)
    view = view_of(tmp_path, 7)
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
    view = view_of(tmp_path, 7)
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
    view = view_of(tmp_path, 7)
    assert view is not None
    assert view.mounts == (Mount(0, 55, "/"), Mount(8, 2, "/lib/aliquot/alloc/abc/usage"))


def test_processes_that_are_gone_are_nothing(tmp_path: Path) -> None:
    proc = ProcFs(tmp_path)
    assert proc.status(7) is None
    process(tmp_path, 7)
    status = proc.status(7)
    assert status is not None
    (tmp_path / "7" / "stat").write_text("cut off")
    assert proc.status(7) is None
    (tmp_path / "7" / "cgroup").unlink()
    assert proc.owner(7, status) is None, "it has ended since its status was read"


def test_a_process_that_executes_another_program_is_another_one(tmp_path: Path) -> None:
    """Not the pid nor the time of its start tell that; where its code and its stack are does."""
    line = "print(open('/proc/self/stat').read(), flush=True)"
    script = f"{line}; import os, sys; os.execv(sys.executable, [sys.executable, '-c', {line!r}])"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    programs = []
    (tmp_path / "7").mkdir()
    for stat in filter(None, printed.splitlines()):
        (tmp_path / "7" / "stat").write_bytes(stat)
        status = ProcFs(tmp_path).status(7)
        assert status is not None
        programs.append(status.program)
    first, second = programs
    assert first[0] == second[0], "the same process"
    assert first != second


HEADLESS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)  # ends this thread, and not the process
"""


def test_a_process_that_goes_on_without_its_first_thread_is_seen_through_the_others() -> None:
    """Its own maps are empty then, and its mounts cannot be read."""
    proc = ProcFs()
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                os.sched_yield()
            status = proc.status(child.pid)
            assert status is not None
            assert status.folder != f"/proc/{child.pid}"
            assert "python" in Path(f"{status.folder}/maps").read_text()
            owner = proc.owner(child.pid, status)
            assert owner is not None
            assert proc.view(owner, status).maps_are_known
            assert not status.is_ending
            child.kill()
            # It is not waited for, so it stays.
            while not (status := proc.status(child.pid)) or not status.is_ending:
                os.sched_yield()
        finally:
            child.kill()


def test_what_cannot_be_read_is_no_reason_not_to_know_whose_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is said once: what is wrong with the agent's rights is wrong for everybody."""
    proc = ProcFs(tmp_path)
    for pid in (7, 8):
        process(tmp_path, pid, f"0::/kubepods/pod{UID}/{CONTAINER}")
        for name in ("maps", "mountinfo"):
            # Reading a folder fails for root, too.
            (tmp_path / str(pid) / name).unlink()
            (tmp_path / str(pid) / name).mkdir()
        status = proc.status(pid)
        assert status is not None
        owner = proc.owner(pid, status)
        assert owner is not None
        assert proc.view(owner, status) == ProcessView(pid, UID, CONTAINER, maps_are_known=False)
    assert len(caplog.messages) == 1
    assert "process 7 uses a GPU, but what it does is hidden" in caplog.messages[0]
    assert "hostPID" in caplog.messages[0]


def test_no_number_of_mappings_takes_much_memory_or_time_to_read(tmp_path: Path) -> None:
    """A tenant may have 65,000 of them, each with a name of 4 KiB: 260 MiB of text."""
    process(tmp_path, 7, f"0::/kubepods/pod{UID}/{CONTAINER}")
    line = f"7f00-7f01 r--p 00000000 fe:01 41 /{'d' * 4000}\n"
    for name in ("maps", "mountinfo"):
        with open(tmp_path / "7" / name, "w") as file:
            file.writelines(line for _ in range(MOST_BYTES // 1000))
    tracemalloc.start()
    try:
        view = view_of(tmp_path, 7)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20
    assert view is not None
    assert (view.pod_uid, view.maps_are_known) == (UID, True), "it is judged by what was seen"
    assert view.shims == frozenset()


def test_as_many_mappings_as_a_program_can_need_are_read_to_the_end(tmp_path: Path) -> None:
    """All that the kernel allows by default, with names as libraries have them."""
    library = f"7f0000000000-7f0000001000 r--p 00000000 fe:01 41 /usr/lib/{'x' * 60}.so\n"
    shim = "7f01-7f02 r-xp 00001000 fe:01 42 /usr/local/lib/aliquot/libaliquot.so\n"
    process(tmp_path, 7, maps=library * 65_530 + shim)
    view = view_of(tmp_path, 7)
    assert view is not None
    assert view.shims == {42}
