"""The real `aliquot plugin` in a process of its own, on simulated GPUs, beside a kubelet."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from simcluster.kubelet import Kubelet
from simgpu.node import LIBRARIES
from tests.patience import PATIENCE_S, eventually
from tests.simulated import SimulatedNode

__all__ = ["AgentProcess"]


class AgentProcess:
    """Starts when told to; `settings` are flags by name with underscores."""

    def __init__(self, node: SimulatedNode, kubelet: Kubelet, state: Path, **settings: str) -> None:
        self.node = node
        self.kubelet = kubelet
        self.state = state
        self.settings = {
            "kubelet_dir": str(kubelet.folder),
            "state_dir": str(state),
            "node_name": "node-1",
            "gpu_access": "simulated",
            "sim_libraries": str(LIBRARIES),
            "usage_store": "folder",
            "api_server": "off",
            "listen": "127.0.0.1:0",
            **settings,
        }
        self.program = ["-m", "aliquot.cli"]
        """How Python is told to be `aliquot`."""
        self.environment: dict[str, str] = {}
        self.log = state.with_name(f"{state.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0

    def command(self, *more: str) -> list[str]:
        flags = [
            f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items() if value
        ]
        return [sys.executable, *self.program, "plugin", *flags, *more]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """To its end, for what ends by itself."""
        return subprocess.run(
            self.command(*more),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
        )

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """For what takes its time and says why."""
        return subprocess.Popen(
            self.command(*more), env=self._environment(), stderr=subprocess.PIPE, text=True
        )

    def start(self) -> "AgentProcess":
        with open(self.log, "ab") as log:
            self._begin = log.tell()
            self._process = subprocess.Popen(
                self.command(), env=self._environment(), stdout=log, stderr=log
            )
        return self

    def start_and_wait(self) -> "AgentProcess":
        """Until the kubelet has healthy ids of ours and the agent says that it is ready."""
        self.start()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        eventually(lambda: self._check_alive() or self.get("/readyz") == (200, "ok\n"))
        self.kubelet.wait_ready()

    def kill(self) -> None:
        """As a crash or the kernel would; the kubelet notices."""
        self._end(signal.SIGKILL)
        self.kubelet.wait_gone()

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def stop(self) -> None:
        """At a test's end, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait_exit(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    @property
    def output(self) -> str:
        """What it has logged since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self._begin)
            return log.read().decode()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 while there is no server."""
        found = re.search(r"answers HTTP on port (\d+)", self.output)
        if found is None:
            return 0, "no port yet"
        try:
            url = f"http://127.0.0.1:{found[1]}{path}"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("ALIQUOT")}
        return {**self.node.node.environment(kept), **self.environment}

    def _check_alive(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise AssertionError(f"the agent ended with {code}:\n{self.output}")
        return False

    def _end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)
