"""The host's device nodes in our own /dev, which was filled once, when our container started."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

__all__ = ["borrow_nodes"]

_log = logging.getLogger(__name__)


def borrow_nodes(
    host: Path,
    own: Path = Path("/dev"),
    make: Callable[[Path, int, int], None] = os.mknod,
) -> None:
    """Makes those of NVIDIA's that a driver has got since: its library looks for them in our /dev,
    and would not find a driver that was loaded after us."""
    for node in sorted((host / "dev").glob("nvidia*")):
        try:
            theirs = node.stat()
            if not stat.S_ISCHR(theirs.st_mode):
                continue
            mine = own / node.name
            if mine.exists():
                if mine.stat().st_rdev == theirs.st_rdev:
                    continue
                mine.unlink()
            make(mine, theirs.st_mode, theirs.st_rdev)
        except OSError as error:  # gone just now, or we are not privileged
            _log.debug("%s is not taken over: %s", node, error)
