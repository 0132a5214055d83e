"""The page as the extender serves it, over views that a test makes up."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from playwright.sync_api import Page

from aliquot.protocol import view
from aliquot.protocol.view import ClusterView, GpuView, History, NodeView, SliceView, WaitingView
from scheduler_ext.connection import HttpError, Response
from scheduler_ext.dashboard.routes import page_routes
from scheduler_ext.server import Route, Server

__all__ = ["GIB", "Site", "Visit", "cluster", "gpu", "history", "node", "part"]

GIB = 1 << 30
Visit = Callable[..., Page]


def part(pod: str, memory_gib: float | None, compute: float, **more: Any) -> SliceView:
    limit_bytes = None if memory_gib is None else int(memory_gib * GIB)
    given = {"namespace": "team", "container": "main", "compute_percent": compute, **more}
    return SliceView(pod=pod, memory_limit_bytes=limit_bytes, **given)


def gpu(
    index: int, *slices: SliceView, memory_gib: int = 40, node: str = "n", **more: Any
) -> GpuView:
    return GpuView(
        uuid=f"GPU-{node}-{index}",
        index=index,
        model="NVIDIA A100-SXM4-40GB",
        memory_bytes=memory_gib * GIB,
        memory_advertised_bytes=memory_gib * GIB,
        slices=slices,
        **more,
    )


def node(name: str, *gpus: GpuView, **more: Any) -> NodeView:
    return NodeView(name=name, taken_at=time.time(), gpus=gpus, **more)


def cluster(
    *nodes: NodeView, waiting: tuple[WaitingView, ...] = (), history: History | None = None
) -> ClusterView:
    return ClusterView(
        taken_at=time.time(), version="1.2.3", nodes=nodes, waiting=waiting, history=history
    )


def history(memory_gib: list[float | None], compute: list[float | None]) -> History:
    memory = [None if each is None else each * GIB for each in memory_gib]
    return History(
        step_s=60,
        end_at=time.time(),
        memory_held_bytes=[None if each is None else 2 * each for each in memory],
        memory_used_bytes=memory,
        compute_held_percent=[None if each is None else 2 * each for each in compute],
        compute_used_percent=compute,
    )


class Site:
    def __init__(self) -> None:
        self.view = cluster()
        self.trouble = ""
        """What is answered in place of a view."""
        self.asked: list[str] = []
        self._server = Server([*page_routes(), Route("GET", "/view", self._view)])
        self._server.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}/"

    def stop(self) -> None:
        self._server.stop()

    def _view(self, _: bytes, headers: Mapping[str, str]) -> Response:
        self.asked.append(headers[":query"])
        if self.trouble:
            raise HttpError(503, self.trouble)
        return Response(view.encode(self.view))
