"""The shim under the sanitizers: its tables in one program, itself in programs of every road."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nativebuild import Toolchain, artifacts
from nativebuild import build as build_artifact
from tests.capped import GIB, PATIENCE_S, ROOT, Share
from tests.native.road_programs import LINK, build
from tests.native.test_roads import CAPPED
from tests.simulated import simulated_node

TABLES = ("allocations", "blocks", "private")
STORM = Path(__file__).parent / "holdings" / "storm.c"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_tables_balance(tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "storm"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-pthread", f"-fsanitize={sanitizer}"]
    command += [
        "-fno-sanitize-recover=all",
        *(f"-I{ROOT / 'shim' / part}" for part in ("src", "abi")),
    ]
    command += [str(STORM), *(str(ROOT / "shim" / "src" / f"{name}.c") for name in TABLES)]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=PATIENCE_S)
    done = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "balanced\n"), done.stderr


@pytest.fixture(scope="module")
def trapping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim that stops where C's behaviour is undefined; it needs no runtime library for that."""
    folder = tmp_path_factory.mktemp("trapping")
    flags = ("-O1", "-g", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    (library,) = (artifact for artifact in artifacts() if artifact.name == "libaliquot")
    build_artifact(library, Toolchain(("cc",), flags), folder)
    return folder / library.target


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    with simulated_node("2xA100-80G") as node:
        yield Share.make(node, tmp_path / "run", {1: GIB})


@pytest.mark.slow
@pytest.mark.parametrize(
    "road", ["dlopen", "default", "proc2", "deepbind-linked", "namespace-linked"]
)
def test_no_road_meets_undefined_behaviour(share: Share, trapping: Path, road: str) -> None:
    library = build("linked.c", "-shared", "-fPIC", "-DIN_LIBRARY", *LINK)
    argument = {"dlopen": "libcuda.so.1", "proc2": "13040"}.get(road, library)
    program = build("road.c", "-Wl,--no-as-needed", *LINK)
    done = share.run([program, road, argument], LD_PRELOAD=str(trapping))
    assert (done.returncode, done.stdout) == (0, CAPPED)


@pytest.mark.slow
def test_threads_meet_no_undefined_behaviour(share: Share, trapping: Path) -> None:
    done = share.run([build("threads.c", "-pthread", *LINK), "4", "500"], LD_PRELOAD=str(trapping))
    before, after, _ = map(int, done.stdout.split())
    assert before == after
