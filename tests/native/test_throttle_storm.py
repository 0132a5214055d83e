"""Throttling under the sanitizers: many threads, many streams, forks."""

import subprocess
from pathlib import Path

import pytest

from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits, Policy
from tests.capped import PATIENCE_S, ROOT

GPU = "GPU-00000000-0000-0000-0000-000000000001"
SOURCES = ("throttle", "tick", "ticker", "probe", "cost", "streams", "budget", "forks")
FILES = ("limits", "usage", "liveness")


def compiled(into: Path, sanitizer: str) -> Path:
    program = into / "storm"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-pthread", f"-fsanitize={sanitizer}"]
    command += ["-fno-sanitize-recover=all"]
    command += [f"-I{ROOT / 'shim' / part}" for part in ("src", "include", "abi")]
    command += [str(ROOT / "shim" / "src" / f"{name}.c") for name in (*SOURCES, *FILES)]
    command += [str(Path(__file__).parent / "compute" / "storm.c"), "-ldl", "-o", str(program)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sanitizer", "forks"), [("address,undefined", True), ("thread", False)], ids=["asan", "tsan"]
)
def test_storms_lose_nothing(tmp_path: Path, sanitizer: str, forks: bool) -> None:
    program = compiled(tmp_path, sanitizer)
    for streams in (1, 4):
        folder = tmp_path / f"{streams}"
        folder.mkdir()
        share = Limits((DeviceLimits(GPU, None, 5000),), Policy.FIXED)
        limits.create(folder / "limits", Kind.COMPUTE, share)
        usage.create(folder / "usage", Kind.COMPUTE, 1)
        arguments = ["4", "2000", str(streams), str(int(forks))]
        done = subprocess.run(
            [program, folder / "limits", folder / "usage", *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stdout) == (0, "balanced\n"), done.stderr[-4000:]
