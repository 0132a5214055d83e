"""Where a user's runs are kept: a folder that nobody else can have prepared."""

import os
import stat
from pathlib import Path

from aliquot.errors import UserError

__all__ = ["own_folder"]


def own_folder() -> Path:
    """The folder of this user's runs, made if needed; only its owner may even look into it."""
    folder = _place()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(folder):
        raise UserError(
            f"{folder} is not a folder of yours alone; remove it, or set XDG_RUNTIME_DIR to one"
        )
    return folder


def _place() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    # After `su`, the variable still names somebody else's.
    if runtime.startswith("/") and _is_private(Path(runtime)):
        return Path(runtime) / "aliquot"
    return Path(f"/tmp/aliquot-{os.getuid()}")


def _is_private(folder: Path) -> bool:
    """Ours, really a folder, and closed to everybody else; links are not followed."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    )
