"""The end-to-end tests' preflight names what a machine lacks, and how to get it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e import preflight


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALIQUOT_E2E_CACHE", str(tmp_path))


def test_a_user_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert list(preflight.problems()) == ["only root can start containers. Run `sudo make e2e`."]


def test_a_machine_without_go_is_told_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    [problem] = preflight._go_problems()
    assert "no go is on the PATH" in problem


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        ("go1.19.8\n\n", False),
        ("go1.25.1\nlocal\n", False),
        ("go1.25.1\nauto\n", True),
        ("go1.26.8\nlocal\n", True),
        ("go1.27rc1\nlocal\n", True),
    ],
)
def test_go_must_be_new_or_fetch_a_new_one(
    monkeypatch: pytest.MonkeyPatch, said: str, enough: bool
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    answer = subprocess.CompletedProcess([], 0, said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert (list(preflight._go_problems()) == []) == enough


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda *_: usage)
    problem = next(iter(preflight._room_problems()))
    assert str(tmp_path) in problem
    assert "1 GiB free" in problem
