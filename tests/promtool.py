"""Prometheus' own tool, as tests ask it."""

import shutil
import subprocess

import pytest

__all__ = ["promtool"]


def promtool(*arguments: str, stdin: str | None = None) -> str:
    """What it prints; fails the test if it finds anything wrong."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on the PATH (Debian: prometheus)")
    ended = subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, timeout=300
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said
