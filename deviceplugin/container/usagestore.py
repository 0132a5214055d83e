"""Where containers may write: a tiny tmpfs each, so that none of them can fill the node's disk."""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from secrets import token_hex

from shim import usage
from shim.limits import Kind

__all__ = ["Mounter", "SystemMounter", "UsageStore", "create", "ensure", "refresh", "remove"]

TMPFS_OPTIONS = "size=64k,nr_inodes=8,mode=0755"
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH = 2

REMOVING_S = 2.0
"""How long a folder that a tenant has filled may keep others waiting; the next time goes on."""
_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UsageStore(Enum):
    """Chosen by the administrator, never guessed."""

    TMPFS = "tmpfs"
    FOLDER = "folder"
    """A plain folder, for agents that may not mount; a tenant could fill the node's disk."""


@dataclass(frozen=True, slots=True)
class Mounter:
    """The two system calls, so that tests can do without them."""

    mount: Callable[[Path], None]
    unmount: Callable[[Path], None]
    is_mounted: Callable[[Path], bool]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(folder: Path) -> None:
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    target, options = os.fsencode(folder), TMPFS_OPTIONS.encode()
    if _libc().mount(b"aliquot", target, b"tmpfs", ctypes.c_ulong(flags), options) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(folder))


def _unmount(folder: Path) -> None:
    if _libc().umount2(os.fsencode(folder), _MNT_DETACH) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(folder))


def _is_mounted(folder: Path) -> bool:
    """By the device alone. The standard library's answer also finds mounts of the same file system,
    which ours never are, by a call for each part of the path."""
    try:
        return folder.lstat().st_dev != folder.parent.lstat().st_dev
    except OSError:
        return False


SystemMounter = Mounter(_mount, _unmount, _is_mounted)


def create(folder: Path, kind: Kind, gpus: int, store: UsageStore, mounter: Mounter) -> None:
    """An account where there is none."""
    folder.mkdir(mode=0o755)
    if store is UsageStore.TMPFS:
        mounter.mount(folder)
    usage.create(folder / "usage", kind, gpus)


def ensure(folder: Path, kind: Kind, gpus: int, store: UsageStore, mounter: Mounter) -> None:
    """Makes what is missing, after a reboot for example; what is there stays."""
    folder.mkdir(mode=0o755, exist_ok=True)
    if store is UsageStore.TMPFS and not mounter.is_mounted(folder):
        mounter.mount(folder)
    if not (folder / "usage").exists():
        usage.create(folder / "usage", kind, gpus)


def refresh(folder: Path, kind: Kind, gpus: int, store: UsageStore, mounter: Mounter) -> None:
    """A new account for a container that starts: what processes of its last life have left there
    cannot be judged from inside the new one."""
    remove(folder, mounter)
    create(folder, kind, gpus, store, mounter)


def remove(folder: Path, mounter: Mounter) -> None:
    # Somebody may have mounted over a mount; each is taken away.
    while mounter.is_mounted(folder):
        mounter.unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """However deep it is, and whatever its owner still does there: folders in folders are moved up
    before they are looked into, so that nothing recurses, no path grows and no link is followed."""
    until_s = time.monotonic() + REMOVING_S
    top = os.open(folder, _AS_FOLDER)
    try:
        while _empty_one_level(top):
            if time.monotonic() > until_s:
                raise OSError(errno.ETIMEDOUT, "there is too much in it", str(folder))
    finally:
        os.close(top)
    folder.rmdir()


def _empty_one_level(top: int) -> bool:
    """Whether there is more."""
    folders = []
    with os.scandir(top) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                folders.append(each.name)
            else:
                os.unlink(each.name, dir_fd=top)
    for name in folders:
        inner = os.open(name, _AS_FOLDER, dir_fd=top)
        try:
            with os.scandir(inner) as entries:
                for each in entries:
                    if each.is_dir(follow_symlinks=False):
                        os.rename(each.name, token_hex(), src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(each.name, dir_fd=inner)
        finally:
            os.close(inner)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            # A listing may pass over what is there while it changes; the next one finds it.
            if error.errno != errno.ENOTEMPTY:
                raise
    return bool(folders)
