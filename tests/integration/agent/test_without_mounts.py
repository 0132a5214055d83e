"""Containers where nobody may mount: the same limits reach the shim by other ways."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simcluster.demo import program
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import start_without_mounts
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess

UNIT_BYTES = 256 << 20
OUT_OF_MEMORY = 2
Begin = Callable[[RunOptions], "subprocess.Popen[str]"]


@pytest.fixture
def begin(short_path: Path) -> Iterator[Begin]:
    started: list[subprocess.Popen[str]] = []

    def start(options: RunOptions) -> "subprocess.Popen[str]":
        process = start_without_mounts(
            options,
            [sys.executable, "-I", program.__file__],
            {"PATH": os.defpath},
            short_path / f"pod-{len(started)}",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for each in started:
        each.communicate(timeout=60)


def ask(process: "subprocess.Popen[str]", line: str = "") -> dict[str, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        print(line, file=process.stdin, flush=True)
    answer: dict[str, int] = json.loads(process.stdout.readline())
    return answer


def test_each_container_sees_and_keeps_its_own_cap(
    kubelet: Kubelet, agent: AgentProcess, begin: Begin
):
    for name, units in (("small", 8), ("large", 16)):
        pod = Pod.asking(name, memory=units, compute=10)
        process = begin(kubelet.run(pod)["main"])
        assert ask(process) == {"total_bytes": units * UNIT_BYTES}
        taken = ask(process, "take 1000000")
        assert taken["result"] == OUT_OF_MEMORY
        assert 0 < taken["taken_bytes"] <= units * UNIT_BYTES
