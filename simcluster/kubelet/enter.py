"""Runs a command in a mount namespace of its own with some mounts, then gets out of the way.

A script of its own: it enters the namespace in a fresh process without threads. What has no place
in the file system gets one: the folder above is covered by a copy made of bind mounts.
"""

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
# The same bits in statvfs and in mount.
NO_SUID_DEV_EXEC = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    wish = json.loads(sys.argv[1])
    if os.geteuid() == 0:
        check(libc.unshare(CLONE_NEWNS), "unshare")
    else:
        enter_as_user()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    tempfile.tempdir = wish["scratch"]
    ours: set[Path] = set()
    for host, container, read_only in wish["mounts"]:
        make_place(Path(container), Path(host).is_dir(), ours)
        mount(host, container, None, MS_BIND | MS_REC)
        if read_only:
            # What a user did not mount he may not make laxer, either.
            kept = os.statvfs(container).f_flag & NO_SUID_DEV_EXEC
            mount(None, container, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)
    command = wish["command"]
    os.execvpe(command[0], command, wish["env"])


def enter_as_user() -> None:
    """Whoever is not root may mount in a user namespace; he stays who he is in it."""
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        try:
            Path("/proc/self", name).write_text(text)
        except OSError as error:
            sys.exit(f"{name}: {error.strerror}")


def make_place(path: Path, is_folder: bool, ours: set[Path]) -> None:
    if path.exists():
        return
    above = next(folder for folder in path.parents if folder.exists())
    if above not in ours:
        cover(above)
        ours.add(above)
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir()
        ours.add(folder)
    make(path, is_folder)


def cover(folder: Path) -> None:
    """Puts in its place a writable one with the same things in it."""
    staging = Path(tempfile.mkdtemp())
    mount("none", staging, "tmpfs", 0)
    staging.chmod(0o755)
    for entry in folder.iterdir():
        copy = staging / entry.name
        if entry.is_symlink():
            copy.symlink_to(entry.readlink())
        elif entry != staging:
            make(copy, entry.is_dir())
            mount(entry, copy, None, MS_BIND | MS_REC)
    mount(staging, folder, None, MS_MOVE)
    if staging.exists():
        staging.rmdir()


def make(path: Path, is_folder: bool) -> None:
    if is_folder:
        path.mkdir()
    else:
        path.touch(0o644)


def mount(source: object, target: object, kind: str | None, flags: int) -> None:
    def text(value: object) -> bytes | None:
        return str(value).encode() if value is not None else None

    result = libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), None)
    check(result, f"mount {source} on {target}")


def check(result: int, what: str) -> None:
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
