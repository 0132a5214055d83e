"""A machine that lacks something is told so in one line, before anything is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/prerequisites"


def prerequisites(python: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, python], env={**os.environ, **environment}, capture_output=True, text=True
    )


def python_without(directory: Path, word: str) -> Path:
    """A Python that fails at whatever mentions the word."""
    stub = directory / "python3"
    stub.write_text(
        f'#!/bin/sh\ncase "$*" in *{word}*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    stub.chmod(0o755)
    return stub


def test_a_complete_machine_passes_silently() -> None:
    done = prerequisites(sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("version_info", "older than 3.11"),
        ("ensurepip", "Debian: python3-venv"),
        ("Python.h", "Debian: python3-dev"),
    ],
)
def test_what_python_lacks_is_named(tmp_path: Path, word: str, advice: str) -> None:
    done = prerequisites(python_without(tmp_path, word))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("aliquot: ")
    assert advice in line


def test_a_missing_compiler_is_named() -> None:
    done = prerequisites(sys.executable, CC="no-such-compiler")
    assert done.returncode == 1
    assert "no C compiler" in done.stderr


def test_a_missing_python_is_named() -> None:
    done = prerequisites("no-such-python")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "aliquot: no no-such-python on the PATH. Install Python 3.11 or later (Debian: python3)."
    ]
