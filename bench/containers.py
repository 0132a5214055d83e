"""Containers for measurements: their files, their processes, and the arbiter between them."""

import json
import os
import signal
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from aliquot.arbitration import Arbitration, Member
from bench.cases import Container, Load
from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits, Policy
from simgpu.node import Node

__all__ = ["Running", "Share", "compile_program", "preloaded", "start", "write_files"]

ROOT = Path(__file__).parent.parent
PRELOAD = ROOT / "shim" / "libaliquot.so"


def compile_program(source: str, into: Path) -> Path:
    """Compiles one of the C programs beside this file."""
    program = into / Path(source).stem
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    flags = ["-std=gnu11", "-O2", f"-I{ROOT / 'shim' / 'abi'}"]
    subprocess.run(
        [compiler, *flags, ROOT / "bench" / source, "-o", program, "-ldl", "-lpthread"], check=True
    )
    return program


@dataclass(slots=True)
class Share:
    """One container's directory and processes."""

    container: Container
    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    said: list[dict[str, int]] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    @property
    def broken(self) -> list[int]:
        """Exit codes of processes that failed by themselves."""
        codes = [process.returncode for process in self.processes]
        return [code for code in codes if code is not None and code > 0]

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)


@dataclass(slots=True)
class Running:
    """All containers of a case while they run."""

    node: Node
    shares: list[Share]
    arbitration: Arbitration | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for share in self.shares:
            for process in share.processes:
                process.terminate()
        for share in self.shares:
            for process in share.processes:
                try:
                    text, _ = process.communicate(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    text, _ = process.communicate()
                share.said += [json.loads(line) for line in text.splitlines()]
        if self.arbitration is not None:
            self.arbitration.stop()


def start(
    node: Node,
    program: Path,
    folder: Path,
    containers: tuple[Container, ...],
    *,
    shim: bool = True,
    arbitrated: bool = True,
) -> Running:
    """Starts everything; without the shim nothing is capped."""
    gpu = node.snapshot().devices[0].uuid
    shares = []
    for number, container in enumerate(containers):
        share = Share(container, folder / f"run{number}")
        write_files(share, gpu)
        shares.append(share)
    members = [Member.of_run(str(share.folder), share.folder, (gpu,)) for share in shares]
    arbitration = None
    if shim and arbitrated:
        arbitration = Arbitration(folder / "arbiter.lock", lambda: members)
        arbitration.start()
    running = Running(node, shares, arbitration)
    for share in shares:
        for load in (*share.container.loads, *share.container.late):
            share.processes.append(_spawn(node, program, share.folder, load, shim=shim))
    for share in shares:
        for load, process in zip(share.container.loads, share.processes, strict=False):
            if load.start_after_s == 0:
                assert process.stdout is not None
                process.stdout.readline()  # it says that it is ready
    return running


def write_files(share: Share, gpu: str) -> None:
    """Makes the limits and the account of a container with one GPU."""
    policy = Policy[share.container.policy.upper().replace("-", "_")]
    for kind in Kind:
        half = share.folder / kind.name.lower()
        half.mkdir(parents=True)
        device = DeviceLimits(gpu, None, share=round(share.container.cap * 100))
        limits.create(half / "limits", kind, Limits((device,), policy))
        usage.create(half / "usage", kind, 1)


def preloaded(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """What makes a program one of a container's."""
    return {**environment, "LD_PRELOAD": str(PRELOAD), "ALIQUOT_RUN": str(folder)}


def _spawn(
    node: Node, program: Path, folder: Path, load: Load, *, shim: bool
) -> subprocess.Popen[str]:
    environment = node.environment(os.environ)
    if shim:
        environment = preloaded(environment, folder)
    return subprocess.Popen(
        [program, *load.arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
