"""A machine is equipped with simulated GPUs once; containers that use them are left alone."""

import subprocess
import sys
from pathlib import Path

from simgpu.node import Node


def equip(folder: Path, name: str = "node-a") -> str:
    return subprocess.run(
        [
            *(sys.executable, "-m", "aliquot.cli", "sim", "host", "--gpus=2xL4", f"--name={name}"),
            *(f"--state={folder / 'state' / 'node'}", f"--libraries={folder / 'lib'}"),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    ).stdout


def uuids(folder: Path) -> list[str]:
    with Node.open(folder / "state" / "node") as node:
        return [device.uuid for device in node.snapshot().devices]


def test_a_second_start_keeps_gpus_and_libraries(tmp_path: Path) -> None:
    assert "made" in equip(tmp_path)
    state, library = tmp_path / "state" / "node", tmp_path / "lib" / "libcuda.so.1"
    before = state.stat().st_ino, library.stat().st_ino
    assert "there already" in equip(tmp_path)
    assert (state.stat().st_ino, library.stat().st_ino) == before


def test_a_state_that_cannot_be_used_is_made_anew(tmp_path: Path) -> None:
    equip(tmp_path)
    (tmp_path / "state" / "node").write_bytes(b"from another version")
    assert "made" in equip(tmp_path)
    assert len(uuids(tmp_path)) == 2


def test_machines_have_different_gpus(tmp_path: Path) -> None:
    equip(tmp_path / "a", "node-a")
    equip(tmp_path / "b", "node-b")
    assert not set(uuids(tmp_path / "a")) & set(uuids(tmp_path / "b"))
