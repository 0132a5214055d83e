"""Equips a machine with simulated GPUs for its containers: a driver, and the state of a node."""

import filecmp
import os
import shutil
from pathlib import Path

from simgpu.node import LIBRARIES, Node, NodeError

__all__ = ["equip"]


def equip(spec: str, name: str, state: Path, libraries: Path) -> bool:
    """Whether the GPUs had to be made: those that are there and usable stay as they are.

    `name` tells the GPUs of one machine from those of another.
    """
    libraries.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES.glob("lib*.so.1"):
        _install(library, libraries / library.name)
    state.parent.mkdir(parents=True, exist_ok=True)
    try:
        Node.open(state).close()
    except NodeError:
        Node.create(state, spec, seed=name).close()
        return True
    return False


def _install(library: Path, target: Path) -> None:
    """By renaming: whoever has mapped the old file keeps it."""
    if target.exists() and filecmp.cmp(library, target, shallow=False):
        return
    fresh = target.with_name(f".{target.name}.new")
    shutil.copyfile(library, fresh)
    fresh.chmod(0o755)
    os.replace(fresh, target)
