"""The account on another processor, with its own ideas about memory order, under an emulator."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.account_programs import DEADLINE_S, Account, compile_program

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("ledger-aarch64")

CAP = 1_000_003
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("aarch64")
    return compile_program("storm", folder, "-static", compiler=COMPILER)


@pytest.mark.parametrize(
    "words",
    [("fill", CAP, 1000, 4), ("churn", CAP, 2, 2, 1000), ("kill", CAP, 2, 20)],
    ids=lambda words: words[0],
)
def test_the_account_holds_on_aarch64(
    storm: Path, tmp_path: Path, words: tuple[object, ...]
) -> None:
    account = Account.create(tmp_path / "run", CAP)
    done = subprocess.run(
        [EMULATOR, storm, *map(str, words)],
        env=account.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
