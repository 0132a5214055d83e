"""Makes docs/top.svg: a real `aliquot top` of real runs on two simulated GPUs.

`python -m bench.top_picture [FILE]`
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from simgpu.node import Node

PICTURE = Path(__file__).parents[1] / "docs" / "top.svg"
WORKER = Path(__file__).with_name("top_worker.py")
ALIQUOT = (sys.executable, "-m", "aliquot.cli")
# Of this machine, the picture shall tell nothing.
TOP = """
import socket, sys
from aliquot.cli import main
socket.gethostname = lambda: "workstation"
sys.exit(main(["top", *sys.argv[1:]]))
"""
SETTLED_S = 5.0
"""Until the shares have settled; rates are those of the last second."""


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    gpu: int
    caps: tuple[str, ...]
    work: tuple[int, int, int]
    """Memory in MiB, busy and pause in milliseconds."""


EXAMPLES = (
    Example("chat", 0, ("--memory=24Gi", "--compute=30"), (21_000, 20, 40)),
    Example("embed", 0, ("--memory=8Gi", "--compute=20", "--policy=fixed"), (3_000, 50, 0)),
    Example("train", 0, ("--memory=40Gi", "--compute=50"), (30_000, 50, 0)),
    Example("notebook", 1, ("--memory=16Gi", "--compute=25"), (20_000, 5, 60)),
    Example("batch", 1, ("--memory=32Gi", "--compute=10", "--policy=best-effort"), (9_000, 50, 0)),
)


def main(target: Path) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aliquot-top-")))
        node = stack.enter_context(Node.create(folder / "node", "2xA100-80G"))
        (folder / "runs").mkdir(mode=0o700)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "runs")}
        environment = node.environment(environment)
        # Each under the name that its run has.
        for example in EXAMPLES:
            (folder / f"{example.name}.py").write_text(WORKER.read_text())
        runs = [stack.enter_context(_start(each, folder, environment)) for each in EXAMPLES]
        for run in runs:
            assert run.stdout is not None
            run.stdout.readline()
        time.sleep(SETTLED_S)
        for words in (["--svg", str(target)], []):
            subprocess.run([sys.executable, "-c", TOP, *words], env=environment, check=True)
        for run in runs:
            assert run.stdin is not None
            run.stdin.close()


def _start(
    example: Example, folder: Path, environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    names = [f"--name={example.name}", f"--gpu={example.gpu}"]
    command = ["python", f"{example.name}.py", *map(str, example.work)]
    return subprocess.Popen(
        [*ALIQUOT, "run", *names, *example.caps, "--", *command],
        cwd=folder,
        env={**environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
