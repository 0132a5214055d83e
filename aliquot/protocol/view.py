"""What is shown of a node and of the cluster: behind `/view`, `aliquot top` and the web page.

The agent tells of its own node at `GET /view` beside its metrics. The extender asks the agents when
somebody looks, adds what only the cluster knows (plans, waiting pods), and tells all of it at its
own `GET /view`. Whatever nobody knows is None, never a guess.
"""

from typing import TypeVar

import msgspec

from aliquot.protocol.assignment import MalformedError

__all__ = [
    "ClusterView",
    "GpuView",
    "History",
    "NodeView",
    "SliceView",
    "WaitingView",
    "decode",
    "encode",
]


class SliceView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One container's part of one GPU."""

    namespace: str
    pod: str
    container: str
    is_running: bool = True
    """False for what is planned but not yet allocated by the node."""
    policy: str = "fixed"
    memory_limit_bytes: int | None = None
    """None: it has the whole GPU."""
    memory_used_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_refusals: int | None = None
    compute_percent: float = 0.0
    """Guaranteed part of the GPU's time."""
    compute_used_percent: float | None = None
    """Part of the GPU's time that it had in the last few seconds."""
    throttled_percent: float | None = None
    """Part of the last few seconds for which its launches were held back."""
    shim_missing: int = 0
    """Processes that use the GPU without the shim."""


class GpuView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    uuid: str
    index: int
    model: str
    memory_bytes: int
    memory_advertised_bytes: int
    memory_used_bytes: int | None = None
    """By anybody, as the driver says."""
    compute_advertised_percent: float = 100.0
    utilization_percent: float | None = None
    """As the driver says."""
    unusable: str = ""
    slices: tuple[SliceView, ...] = ()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Averages over steps of equal length, oldest first; all lists are equally long.

    A step for which nothing is known is None.
    """

    step_s: int
    end_at: float
    """Unix time of the end of the last step."""
    memory_held_bytes: list[float | None]
    memory_used_bytes: list[float | None]
    compute_held_percent: list[float | None]
    compute_used_percent: list[float | None]


class NodeView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    taken_at: float
    """Unix time."""
    gpus: tuple[GpuView, ...] = ()
    problem: str = ""
    """Why less than all of this is known, as a sentence."""
    history: dict[str, History] | None = None
    """By uuid, of about the last hour; only where it was asked for (`/view?history`)."""


class WaitingView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    namespace: str
    pod: str
    since: float
    """Unix time."""
    asks: str
    """What it asks for, in words."""
    reason: str = ""
    """Why it waits, the sentence of `aliquot explain`."""


class ClusterView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    taken_at: float
    version: str
    nodes: tuple[NodeView, ...] = ()
    waiting: tuple[WaitingView, ...] = ()
    history: History | None = None
    """The sum of all nodes; only where it was asked for (`/view?history`)."""


T = TypeVar("T", NodeView, ClusterView)


def encode(view: NodeView | ClusterView) -> bytes:
    return msgspec.json.encode(view)


def decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from None
