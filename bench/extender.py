"""How long kube-scheduler waits for the extender in a large cluster, and what that takes.

The extender runs as its own process (`aliquot extender`) against an API server's answers from
memory. Then pods are scheduled one after the other over one real connection, in kube-scheduler's
JSON: filter, prioritize, bind; the oldest of them is deleted for each new one. Watched changes
arrive meanwhile, as they would in a cluster.
"""

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from bench.extender_cluster import bound_pods, kinds, nodes, pages, pending_pod
from bench.extender_cpu import measure_cpu
from bench.extender_server import TOLD, stored_server
from bench.viewer import Viewer, standing_agents

__all__ = ["main", "measure"]

READY_S = 120.0
ALIVE = 200
"""Pods of the run that exist at a time."""


def measure(
    node_count: int, pod_count: int, calls: int, seed: int, agent_url: str = ""
) -> dict[str, Any]:
    """With `agent_url`, where all agents are, somebody looks at the dashboard meanwhile."""
    names = [f"gpu-node-{number:05}" for number in range(node_count)]
    bound = pages(bound_pods(pod_count, node_count, seed))
    with (
        stored_server(pages(nodes(node_count, agent_url)), bound) as server_port,
        tempfile.TemporaryDirectory(prefix="aliquot-bench-") as folder,
    ):
        url = f"http://127.0.0.1:{server_port}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aliquot.cli", "extender", "--listen", "127.0.0.1:0"),
                *("--kubeconfig", str(_kubeconfig(Path(folder), url))),
                *("--listen-tls", "off", "--dashboard", "off", "--leader-election", "off"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            began_s = time.perf_counter()
            port = _port(process)
            client = _Client(port)
            client.await_ready()
            rebuild_s = time.perf_counter() - began_s
            before_s = _cpu_s(process.pid)
            with Viewer(port) if agent_url else nullcontext() as viewer:
                result = _schedule(client, _Client(server_port), names, calls, seed)
            if viewer is not None:
                result |= viewer.figures()
            cpu_s = _cpu_s(process.pid) - before_s
            metrics = client.call("GET", "/metrics", b"").decode()
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        finally:
            process.terminate()
            process.wait()
    assert peak is not None
    return {
        "nodes": node_count,
        "gpus": 8 * node_count,
        "bound_pods": pod_count,
        "calls": calls,
        "rebuild_s": round(rebuild_s, 2),
        "memory_mib": round(int(peak[1]) / 1024, 1),
        **result,
        # Of all its threads, watch and API requests included: what a busy machine cannot distort.
        "cpu_ms_per_pod": round(1e3 * cpu_s / (calls + len(kinds())), 2),
        "bind_decision_below_2_ms": _below(metrics, "bind decision", "0.002"),
        **measure_cpu(node_count, pod_count, calls, seed),
    }


def _schedule(
    client: "_Client", server: "_Client", names: list[str], calls: int, seed: int
) -> dict[str, Any]:
    drawn = random.Random(seed)
    all_kinds = kinds()
    # Every kind once before anything is counted: its first scores are for all nodes.
    order = [*all_kinds, *(drawn.choice(all_kinds) for _ in range(calls))]
    times: dict[str, list[float]] = {"filter": [], "prioritize": [], "both": [], "bind": []}
    alive: deque[dict[str, Any]] = deque()
    unplaced = 0
    for number, kind in enumerate(order):
        pod = pending_pod(number, kind)
        server.call("POST", TOLD, msgspec.json.encode({"type": "ADDED", "object": pod}))
        # kube-scheduler begins each time where it left off.
        shift = drawn.randrange(len(names))
        spent = _one(client, pod, names[shift:] + names[:shift])
        if number >= len(all_kinds):
            unplaced += spent is None
            for name, milliseconds in (spent or {}).items():
                times[name].append(milliseconds)
        alive.append(pod)
        if len(alive) > ALIVE:
            gone = msgspec.json.encode({"type": "DELETED", "object": alive.popleft()})
            server.call("POST", TOLD, gone)
    result: dict[str, Any] = {"unplaced": unplaced}
    for name, values in times.items():
        ordered = sorted(values)
        result[f"{name}_p50_ms"] = round(ordered[len(ordered) // 2], 2)
        result[f"{name}_p99_ms"] = round(ordered[int(len(ordered) * 0.99)], 2)
        result[f"{name}_max_ms"] = round(ordered[-1], 2)
    return result


def _one(client: "_Client", pod: dict[str, Any], names: list[str]) -> dict[str, float] | None:
    """Milliseconds by verb, or None when the pod fits nowhere."""
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    began_s = time.perf_counter()
    answer = client.call("POST", "/scheduler/filter", body)
    filter_s = time.perf_counter() - began_s
    passed = msgspec.json.decode(answer)["NodeNames"]
    if not passed:
        return None
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": passed})
    began_s = time.perf_counter()
    answer = client.call("POST", "/scheduler/prioritize", body)
    prioritize_s = time.perf_counter() - began_s
    scores = msgspec.json.decode(answer)
    best = max(scores, key=lambda each: int(each["Score"]))["Host"]
    metadata = pod["metadata"]
    binding = {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": best,
    }
    began_s = time.perf_counter()
    answer = client.call("POST", "/scheduler/bind", msgspec.json.encode(binding))
    bind_s = time.perf_counter() - began_s
    error = msgspec.json.decode(answer)["Error"]
    if error:
        raise RuntimeError(error)
    return {
        "filter": 1e3 * filter_s,
        "prioritize": 1e3 * prioritize_s,
        "both": 1e3 * (filter_s + prioritize_s),
        "bind": 1e3 * bind_s,
    }


class _Client:
    """HTTP with nothing around it, so that what is measured is the extender."""

    def __init__(self, port: int) -> None:
        self._line = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Else Python polls before each call, and waits for its turn once more.
        self._line.settimeout(None)

    def call(self, method: str, path: str, body: bytes) -> bytes:
        status, answer = self._exchange(method, path, body)
        if status != 200:
            raise RuntimeError(f"{path} answered {status}: {answer[:300]!r}")
        return answer

    def await_ready(self) -> None:
        deadline_s = time.monotonic() + READY_S
        while self._exchange("GET", "/readyz", b"")[0] != 200:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the extender was not ready after {READY_S:.0f} s")
            time.sleep(0.01)

    def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self._line.sendall(head.encode() + body)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._line.recv(1 << 20)
        text = received[:end].decode()
        length = re.search(r"(?i)content-length: (\d+)", text)
        assert length is not None
        while len(received) < end + 4 + int(length[1]):
            received += self._line.recv(1 << 20)
        return int(text.split(" ", 2)[1]), bytes(received[end + 4 :])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "bench",
                "clusters": [{"name": "bench", "cluster": {"server": url}}],
                "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
                "users": [{"name": "bench", "user": {}}],
            }
        )
    )
    return path


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"listening on port (\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return int(found[1])
    raise RuntimeError("the extender did not start")


def _below(metrics: str, verb: str, bound: str) -> float:
    """The part of calls within a bound, by the extender's own histogram."""
    name = "aliquot_extender_verb_seconds"
    within = re.search(rf'{name}_bucket{{le="{bound}",verb="{verb}"}} (\S+)', metrics)
    count = re.search(rf'{name}_count{{verb="{verb}"}} (\S+)', metrics)
    assert within is not None
    assert count is not None
    return round(float(within[1]) / float(count[1]), 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="1000,5000", help="sizes of the cluster, in nodes")
    parser.add_argument("--pods-per-node", type=int, default=20, help="bound before the run")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--viewer", action="store_true", help="somebody looks at the dashboard")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with standing_agents() if options.viewer else nullcontext("") as agent_url:
        results = [
            measure(count, options.pods_per_node * count, options.calls, options.seed, agent_url)
            for count in map(int, options.nodes.split(","))
        ]
    if options.json:
        print(json.dumps(results, indent=2))
        return 0
    for result in results:
        print(" ".join(f"{name}={value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
