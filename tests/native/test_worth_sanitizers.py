"""The worth of nodes under the sanitizers, with numbers that no cluster has."""

import subprocess
from pathlib import Path

from tests.capped import PATIENCE_S, ROOT

TRIES = 2_000
STORM = Path(__file__).parent / "placement" / "worth_storm.c"
NATIVE = ROOT / "scheduler_ext" / "placement" / "native"


def test_no_number_leads_out_of_the_arrays(tmp_path: Path) -> None:
    program = tmp_path / "storm"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined"]
    command += ["-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command += [f"-I{NATIVE}", str(STORM), str(NATIVE / "worth.c"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    done = subprocess.run([program, str(TRIES)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr[-4000:]
