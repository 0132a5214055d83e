"""What the node agent costs: an allocation, its start, its memory, and doing nothing.

The real agent in a process of its own, on 16 simulated GPUs of 288 GB, beside the kubelet stand-in
that tests use. First 400 containers are admitted; then one after the other is replaced, and each
call of the kubelet is timed at the kubelet's end. `python -m bench.agent --json` prints one object,
without `--json` a table. With `--api-server` there is a stand-in of that, too, which knows all
pods, in a process of its own.
"""

import argparse
import gc
import json
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from scheduler_ext.certificates.material import Lifetimes, renewed
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.apiserver import write_kubeconfig as write_kubeconfig_of
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.endpoint import Endpoint
from simgpu.node import Node
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, bound, pod_path
from tests.simulated import SimulatedNode

GPUS = 16
GPU_BYTES = 288 * 10**9
CONTAINERS = 400
REPLACED = 300
IDLE_S = 30.0
MEMORY_UNITS, COMPUTE_PERCENT = 40, 3
"""Of each container: 400 of them leave a little of every GPU free."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one kind of call, in milliseconds."""

    calls: int
    median_ms: float
    p99_ms: float
    most_ms: float

    @classmethod
    def of(cls, times_s: Sequence[float]) -> "Latency":
        ordered = sorted(1000 * each for each in times_s)

        def at(part: float) -> float:
            return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]

        return cls(len(ordered), at(0.5), at(0.99), ordered[-1])


@dataclass(frozen=True, slots=True)
class Figures:
    registered_s: float
    """From the start of the process until the kubelet has all ids of both resources."""
    restarted_s: float
    """The same with 400 containers to take over."""
    allocate: Latency
    prefer: Latency
    pre_start: Latency
    round_trip: Latency
    """Of a call that has nothing to do, for comparison: gRPC, and the stand-in at its other end."""
    cpu_ms_per_container: float
    """The agent's processor time for all calls of one container, which other load on the machine
    does not change much."""
    fsync: Latency
    """Of a page of a new file in the same folder, for comparison: an allocation waits for some."""
    resident_mib: float
    simulated_mib: float
    """How much of that is the simulated GPUs' state, which the simulator's NVML maps."""
    idle_percent: float
    """Of a core, with 400 containers that do nothing, without the compute arbiter."""
    arbiter_percent: float


class Timed:
    """Times the calls of a kubelet's endpoints."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.times_s: dict[str, list[float]] = {"allocate": [], "prefer": [], "pre_start": []}
        for resource in (MEMORY_RESOURCE, COMPUTE_RESOURCE):
            endpoint = kubelet.manager.endpoints[resource]
            assert isinstance(endpoint, Endpoint)
            for name in self.times_s:
                self._wrap(endpoint, name)

    def _wrap(self, endpoint: Endpoint, name: str) -> None:
        call = getattr(endpoint, name)

        def timed(*arguments: object) -> object:
            began_s = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.times_s[name].append(time.perf_counter() - began_s)

        setattr(endpoint, name, timed)


@contextmanager
def prompt_stand_in() -> Iterator[None]:
    """A kubelet does not stop for garbage, nor for 5 ms because another of its threads is at work:
    Python's ways would be taken for the agent's time."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(before_s)


class SeparateApiServer:
    """The stand-in of the API server in a process of its own: beside that of the kubelet it would
    hold up the calls that are timed."""

    def __init__(self) -> None:
        processes = multiprocessing.get_context("spawn")
        self._line, there = processes.Pipe()
        self._process = processes.Process(target=serve_api, args=(there,), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.url: str = self._line.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def add(self, manifest: dict[str, Any]) -> None:
        self._tell("add", manifest)

    def remove(self, path: str) -> None:
        self._tell("remove", path)

    def _tell(self, *what: object) -> None:
        self._line.send(what)
        self._line.recv()


def serve_api(line: Connection) -> None:
    with ApiServer() as server:
        line.send(server.url)
        while True:
            action, what = line.recv()
            getattr(server, action)(what)
            line.send(None)


@contextmanager
def large_node(folder: Path) -> Iterator[SimulatedNode]:
    hardware = folder / "hardware.json"
    gpus = [{"model": "B200", "count": GPUS, "memory_bytes": GPU_BYTES}]
    hardware.write_text(json.dumps({"gpu": gpus}))
    (folder / "node").mkdir()
    with Node.create(folder / "node" / "state", str(hardware)) as node:
        yield SimulatedNode(node)


def start(agent: AgentProcess, kubelet: Kubelet) -> float:
    units = GPUS * (GPU_BYTES // (256 << 20))
    began_s = time.perf_counter()
    agent.start()
    kubelet.wait_for(
        lambda: (
            kubelet.allocatable(MEMORY_RESOURCE) == units
            and kubelet.allocatable(COMPUTE_RESOURCE) == 100 * GPUS
        ),
        "all ids",
    )
    return time.perf_counter() - began_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def arbiter_cpu_s(agent: AgentProcess) -> float:
    for line in agent.get("/metrics")[1].splitlines():
        if line.startswith("aliquot_arbiter_cpu_seconds_total "):
            return float(line.split()[1])
    raise AssertionError("no aliquot_arbiter_cpu_seconds_total")


def fsync_latency(folder: Path) -> Latency:
    times_s = []
    for number in range(100):
        with open(folder / f"page-{number}", "wb") as file:
            file.write(bytes(4096))
            file.flush()
            began_s = time.perf_counter()
            os.fsync(file.fileno())
            times_s.append(time.perf_counter() - began_s)
    return Latency.of(times_s)


def round_trip_latency(kubelet: Kubelet) -> Latency:
    endpoint = kubelet.manager.endpoints[MEMORY_RESOURCE]
    assert isinstance(endpoint, Endpoint)
    times_s = []
    for _ in range(600):
        began_s = time.perf_counter()
        endpoint.get_options()
        times_s.append(time.perf_counter() - began_s)
    return Latency.of(times_s)


def resident_mib(pid: int, of: str = "") -> float:
    """Of all mappings, or of those of one file."""
    counted, found_kib = False, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            counted = not of or rest[-1] == of
        elif counted and name == "Rss:":
            found_kib += int(rest[0])
    return found_kib / 1024


def write_kubeconfig(server: SeparateApiServer, folder: Path) -> str:
    """With an authority of its own, as clusters have one: else the client would load all those that
    browsers trust, which take megabytes."""
    authority = folder / "ca.pem"
    material = renewed(None, ["localhost"], datetime.now(UTC), Lifetimes())
    authority.write_bytes(material.trusted_pem)
    path = Path(write_kubeconfig_of(server.url, folder / "kubeconfig"))
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    path.write_text(json.dumps(content))
    return str(path)


def pod(name: str) -> Pod:
    return Pod.asking(name, memory=MEMORY_UNITS, compute=COMPUTE_PERCENT)


def run(kubelet: Kubelet, server: SeparateApiServer | None, each: Pod) -> None:
    if server is not None:
        server.add(bound(each))
    # Without an API server nobody knows the second resource's size when the first one comes, and
    # memory is what these GPUs run out of.
    with kubelet.order(MEMORY_RESOURCE):
        kubelet.run(each)


def finish(kubelet: Kubelet, server: SeparateApiServer | None, each: Pod) -> None:
    kubelet.finish(each)
    if server is not None:
        server.remove(pod_path(each))


def measure(folder: Path, with_api_server: bool = False) -> Figures:
    with (
        SeparateApiServer() if with_api_server else nullcontext() as server,
        large_node(folder) as node,
        Kubelet(folder / "kubelet") as kubelet,
    ):
        agent = AgentProcess(node, kubelet, folder / "state")
        if server is not None:
            server.add(node_manifest(NODE))
            agent.settings["api_server"] = "auto"
            agent.environment["KUBECONFIG"] = write_kubeconfig(server, folder)
        try:
            registered_s = start(agent, kubelet)
            pods = [pod(f"pod-{number}") for number in range(CONTAINERS)]
            for each in pods:
                run(kubelet, server, each)
            agent.kill()
            restarted_s = start(agent, kubelet)
            timed, used_s = Timed(kubelet), cpu_s(agent.pid)
            with prompt_stand_in():
                for number in range(REPLACED):
                    finish(kubelet, server, pods[number % CONTAINERS])
                    pods[number % CONTAINERS] = pod(f"next-{number}")
                    run(kubelet, server, pods[number % CONTAINERS])
            used_s = cpu_s(agent.pid) - used_s
            round_trip = round_trip_latency(kubelet)
            # The page with the arbiter's time costs some itself, so it is read outside the span.
            arbiter_s, before_s, began_s = arbiter_cpu_s(agent), cpu_s(agent.pid), time.monotonic()
            time.sleep(IDLE_S)
            passed_s, idle_s = time.monotonic() - began_s, cpu_s(agent.pid) - before_s
            memory_mib = resident_mib(agent.pid)
            simulated_mib = resident_mib(agent.pid, str(folder / "node" / "state"))
            arbiter_s = arbiter_cpu_s(agent) - arbiter_s
            return Figures(
                registered_s=registered_s,
                restarted_s=restarted_s,
                allocate=Latency.of(timed.times_s["allocate"]),
                prefer=Latency.of(timed.times_s["prefer"]),
                pre_start=Latency.of(timed.times_s["pre_start"]),
                round_trip=round_trip,
                cpu_ms_per_container=1000 * used_s / REPLACED,
                fsync=fsync_latency(folder),
                resident_mib=memory_mib,
                simulated_mib=simulated_mib,
                idle_percent=100 * (idle_s - arbiter_s) / passed_s,
                arbiter_percent=100 * arbiter_s / passed_s,
            )
        finally:
            agent.stop()


def table(figures: Figures) -> str:
    lines = [
        f"registered after start          {figures.registered_s:8.2f} s   (target: 1 s)",
        f"the same with {CONTAINERS} containers    {figures.restarted_s:8.2f} s",
    ]
    for name, latency in (
        ("Allocate", figures.allocate),
        ("GetPreferredAllocation", figures.prefer),
        ("PreStartContainer", figures.pre_start),
        ("a call with no work", figures.round_trip),
        ("fsync of one page", figures.fsync),
    ):
        target = "   (target: 5 ms at p99)" if name == "Allocate" else ""
        lines.append(
            f"{name:<24} {latency.median_ms:6.2f} ms median, {latency.p99_ms:6.2f} ms p99, "
            f"{latency.most_ms:6.2f} ms most, of {latency.calls}{target}"
        )
    lines += [
        f"processor time per container    {figures.cpu_ms_per_container:8.1f} ms",
        f"memory                          {figures.resident_mib:8.1f} MiB (target: 80 MiB)",
        f"  of the simulated GPUs' state  {figures.simulated_mib:8.1f} MiB",
        f"idle                            {figures.idle_percent:8.2f} %   (target: 1 %)",
        f"compute arbiter                 {figures.arbiter_percent:8.2f} %",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    parser.add_argument("--api-server", action="store_true", help="beside a stand-in of that")
    parser.add_argument("--folder", help="where the node's files are; /dev/shm takes the disk out")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir=options.folder))
    try:
        figures = measure(folder, options.api_server)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(asdict(figures)) if options.json else table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
