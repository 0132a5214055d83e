"""Somebody who looks at the dashboard while the extender is measured, and the agents it then asks.

As a program it stands in for all of a cluster's agents: one server, in a process of its own, whose
answer to `/view` is a node with 8 GPUs and 20 containers.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection

from aliquot.protocol import view
from aliquot.protocol.view import GpuView, History, NodeView, SliceView
from scheduler_ext.connection import Response
from scheduler_ext.server import Limits, Route, Server

__all__ = ["Viewer", "standing_agents"]

EVERY_S = 2.5
HISTORY_EVERY_S = 30.0
GPUS = 8
SLICES = 20
STEPS = 60
GIB = 1 << 30


@contextmanager
def standing_agents() -> Iterator[str]:
    """The address that every node's inventory may name."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.viewer"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class Viewer:
    """Asks as the page does, until it is told to leave."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.milliseconds: list[float] = []
        self.zipped_bytes = 0

    def __enter__(self) -> "Viewer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        ordered = sorted(self.milliseconds)
        return {
            "views": len(ordered),
            "view_p50_ms": round(ordered[len(ordered) // 2], 1),
            "view_max_ms": round(ordered[-1], 1),
            "view_zipped_kib": round(self.zipped_bytes / 1024, 1),
        }

    def _look(self) -> None:
        history_s = float("-inf")
        while not self._leaving.wait(EVERY_S if self.milliseconds else 0.0):
            began_s = time.perf_counter()
            self.zipped_bytes = self._get("/view")
            self.milliseconds.append(1e3 * (time.perf_counter() - began_s))
            if began_s - history_s >= HISTORY_EVERY_S:
                history_s = began_s
                self._get("/view?history")

    def _get(self, path: str) -> int:
        line = HTTPConnection("127.0.0.1", self._port, timeout=60)
        line.request("GET", path, headers={"Accept-Encoding": "gzip"})
        body = line.getresponse().read()
        line.close()
        return len(body)


def _node(*, history: bool) -> NodeView:
    gpus = tuple(
        GpuView(
            uuid=f"GPU-00000000-0000-4000-8000-{index:012x}",
            index=index,
            model="NVIDIA A100-SXM4-80GB",
            memory_bytes=80 * GIB,
            memory_advertised_bytes=80 * GIB,
            memory_used_bytes=30 * GIB,
            utilization_percent=61.5,
            slices=tuple(_slice(number) for number in range(index, SLICES, GPUS)),
        )
        for index in range(GPUS)
    )
    steps: list[float | None] = [1234567.89] * STEPS
    past = History(
        step_s=60,
        end_at=time.time(),
        memory_held_bytes=steps,
        memory_used_bytes=steps,
        compute_held_percent=steps,
        compute_used_percent=steps,
    )
    return NodeView(
        name="any",
        taken_at=time.time(),
        gpus=gpus,
        history={gpu.uuid: past for gpu in gpus} if history else None,
    )


def _slice(number: int) -> SliceView:
    return SliceView(
        namespace=f"team-{number}",
        pod=f"bound-{number:06}-7c9d8b6f5-x2k4p",
        container="main",
        policy="burst",
        memory_limit_bytes=8 * GIB,
        memory_used_bytes=6 * GIB,
        memory_peak_bytes=7 * GIB,
        memory_refusals=0,
        compute_percent=20.0,
        compute_used_percent=18.25,
        throttled_percent=3.5,
    )


def _answer(_: bytes, headers: Mapping[str, str]) -> Response:
    return Response(view.encode(_node(history="history" in headers[":query"])))


def main() -> int:
    server = Server([Route("GET", "/view", _answer)], limits=Limits(connections=2048))
    server.start()
    print(server.port, flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
