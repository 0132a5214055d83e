"""Where containers may write: a tiny tmpfs each, so that none of them can fill the node's disk."""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from shim import usage
from shim.limits import Kind

__all__ = ["Mounter", "SystemMounter", "UsageStore", "create", "ensure", "refresh", "remove"]

TMPFS_OPTIONS = "size=64k,nr_inodes=8,mode=0755"
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH = 2


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
        shutil.rmtree(folder)
