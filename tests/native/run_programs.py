"""Starts `aliquot` as a user does."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.simulated import SimulatedNode

ROOT = Path(__file__).parents[2]
ALIQUOT = (sys.executable, "-m", "aliquot.cli")
DEADLINE_S = 120
"""For what takes milliseconds, on a machine that is busy with something else."""


def user_environment(node: SimulatedNode, folder: Path) -> dict[str, str]:
    """A user on the simulated node whose runtime folder is the test's own."""
    folder.chmod(0o700)
    return {**node.env, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder)}


def aliquot(
    env: dict[str, str], *words: object, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALIQUOT, *map(str, words)],
        env=env,
        **{"capture_output": True, "text": True, "timeout": DEADLINE_S} | options,
    )


def folders(env: dict[str, str]) -> list[str]:
    base = Path(env["XDG_RUNTIME_DIR"]) / "aliquot"
    return sorted(path.name for path in base.iterdir() if path.is_dir()) if base.exists() else []
