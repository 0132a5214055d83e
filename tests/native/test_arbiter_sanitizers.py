"""The arbiter's C under the sanitizers, between tenants that write anything."""

import subprocess
from pathlib import Path

import pytest

from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits, Policy
from tests.capped import PATIENCE_S, ROOT

CONTAINERS = 4
TICKS = 200
SHARE = 2500
GPU = "GPU-00000000-0000-0000-0000-000000000001"
STORM = Path(__file__).parent / "compute" / "arbiter_storm.c"
SOURCES = (
    *("arbitration/decide.c", "arbitration/tick.c"),
    *("src/limits.c", "src/usage.c", "src/liveness.c"),
)


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_tenant_disturbs_the_arbiter(tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "storm"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-pthread", f"-fsanitize={sanitizer}"]
    command += ["-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command += [f"-I{ROOT / 'shim' / 'include'}", str(STORM)]
    command += [str(ROOT / "shim" / source) for source in SOURCES]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=PATIENCE_S)
    paths = []
    for number in range(CONTAINERS):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        share = Limits((DeviceLimits(GPU, None, SHARE),), Policy.FIXED)
        limits.create(folder / "limits", Kind.COMPUTE, share)
        usage.create(folder / "usage", Kind.COMPUTE, 1)
        paths += [folder / "limits", folder / "usage"]
    done = subprocess.run(
        [program, str(TICKS), *paths], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr[-4000:]
