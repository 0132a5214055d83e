"""`make demo`: what works so far, on a simulated GPU, with every promise checked.

Two commands share one GPU through `aliquot run`, each under its own cap, and fill it until the
driver refuses. What they hold is read from the simulator's account, not from what they say.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simgpu.node import Node

GPU = "1xA100-80G"
GIB = 1 << 30

TO_COME = ("pods on the node agent and the extender, live", "compute shares")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: what it was promised, and what it got."""

    name: str
    cap_bytes: int
    seen_bytes: int
    held_bytes: int
    refused_in_time: bool

    @property
    def kept(self) -> bool:
        """The cap was seen, was reached to within a context and a chunk, and was not passed."""
        return (
            self.seen_bytes == self.cap_bytes
            and self.refused_in_time
            and self.cap_bytes - GIB < self.held_bytes <= self.cap_bytes
        )


def share(node: Node, caps: dict[str, str]) -> list[Outcome]:
    """Runs one client per cap, all at the same time, and compares them with the node's account."""
    with ExitStack() as stack:
        runs = {name: stack.enter_context(_start(node, name, cap)) for name, cap in caps.items()}
        reports = {name: _report(run, name) for name, run in runs.items()}
        held = _held_bytes(node)
        for run in runs.values():
            assert run.stdin is not None
            run.stdin.close()
        if failed := [name for name, run in runs.items() if run.wait() != 0]:
            raise RuntimeError(f"{', '.join(failed)} did not end well")
    return [
        Outcome(
            name=name,
            cap_bytes=int(cap.removesuffix("Gi")) * GIB,
            seen_bytes=reports[name]["total_bytes"],
            held_bytes=held[runs[name].pid],
            refused_in_time=bool(reports[name]["refused_in_time"]),
        )
        for name, cap in caps.items()
    ]


def _start(node: Node, name: str, cap: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "aliquot.cli", "run", "--memory", cap, "--name", name, "--"),
            *(sys.executable, "-m", "aliquot.demo_client"),
        ],
        env=node.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _report(run: "subprocess.Popen[str]", name: str) -> dict[str, int]:
    assert run.stdout is not None
    line = run.stdout.readline()
    if not line:
        raise RuntimeError(f"{name} ended before it said what it saw (exit code {run.wait()})")
    return dict(json.loads(line))


def _held_bytes(node: Node) -> dict[int, int]:
    """Device memory by the pid of the `aliquot run` above each process of the node."""
    return {
        _parent(process.pid): sum(usage.used_bytes for usage in process.usages)
        for process in node.snapshot().processes
    }


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid")))


def main() -> int:
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="aliquot-demo-") as directory,
        Node.create(Path(directory) / "node", GPU) as node,
    ):
        console.print(f"A simulated node with {GPU}, two commands at once under `aliquot run`:")
        outcomes = share(node, {"demo-inference": "4Gi", "demo-training": "16Gi"})
    table = Table("run", "asked", "sees", "holds", "at its edge", "promise")
    for outcome in outcomes:
        table.add_row(
            outcome.name,
            f"{outcome.cap_bytes / GIB:.2f} GiB",
            f"{outcome.seen_bytes / GIB:.2f} GiB",
            f"{outcome.held_bytes / GIB:.2f} GiB",
            "out of memory" if outcome.refused_in_time else "another error",
            "kept" if outcome.kept else "BROKEN",
        )
    console.print(table)
    console.print(f"Still to come in this demo: {', '.join(TO_COME)}.")
    return 0 if all(outcome.kept for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
