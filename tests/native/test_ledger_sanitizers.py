"""The account's programs under the sanitizers: no race, no stray access, nothing undefined."""

import shutil
from pathlib import Path

import pytest

from tests.native.account_programs import Account, compile_program, run_program

CAP = 1_000_003
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD = ("-fsanitize=thread",)

# One worker compiles the programs, and uses them.
pytestmark = [
    pytest.mark.xdist_group("ledger-sanitizers"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed"),
]


@pytest.fixture(scope="module", params=[ADDRESS, THREAD], ids=["address", "thread"])
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("storm", tmp_path_factory.mktemp("sanitized"), *request.param)


@pytest.mark.parametrize(
    "storm_of",
    [
        ("fill", CAP, 1000, 4),
        ("churn", CAP, 2, 4, 1500),
        ("kill", CAP, 3, 100),
        ("fork", 4),
    ],
    ids=lambda words: words[0],
)
def test_nothing_is_reported(storm: Path, tmp_path: Path, storm_of: tuple[object, ...]) -> None:
    cap = 1 << 30 if storm_of[0] == "fork" else CAP
    run_program(storm, Account.create(tmp_path / "run", cap), *storm_of)


def test_torn_limits_under_the_address_sanitizer(tmp_path: Path) -> None:
    torn = compile_program("torn", tmp_path, *ADDRESS)
    account = Account.create(tmp_path / "run", CAP)
    run_program(torn, account, account.limits(), 40)
