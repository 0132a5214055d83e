"""What `aliquot top` draws, as plain values: lines with meters, notes, and who waits."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aliquot.protocol.view import ClusterView, GpuView, NodeView, SliceView
from aliquot.sizes import format_size

__all__ = ["Line", "Meter", "NodePicture", "Picture", "WaitingLine", "picture_of"]

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


@dataclass(frozen=True, slots=True)
class Meter:
    """A bar and the text beside it; parts are from 0 to 1."""

    text: str
    filled: float | None = None
    """None where nobody knows."""
    mark: float | None = None
    """Where a guarantee ends."""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    memory: Meter
    compute: Meter
    throttled: str = ""
    is_gpu: bool = False
    is_planned: bool = False
    is_broken: bool = False
    policy: str = ""
    peak: str = ""
    refused: str = ""
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class NodePicture:
    name: str
    summary: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class WaitingLine:
    name: str
    waits: str
    asks: str
    reason: str


@dataclass(frozen=True, slots=True)
class Picture:
    summary: str
    nodes: tuple[NodePicture, ...]
    waiting: tuple[WaitingLine, ...]
    notes: tuple[str, ...]


def picture_of(view: ClusterView, *, full_names: bool = False) -> Picture:
    """`full_names` names containers also where a pod has only one."""
    return Picture(
        summary=_summary(view),
        nodes=tuple(_node(node, full_names) for node in view.nodes),
        waiting=tuple(
            WaitingLine(
                name=f"{each.namespace}/{each.pod}",
                waits=_duration(view.taken_at - each.since),
                asks=each.asks,
                reason=each.reason,
            )
            for each in view.waiting
        ),
        notes=tuple(note for node in view.nodes for note in _notes(node)),
    )


def _summary(view: ClusterView) -> str:
    gpus = [gpu for node in view.nodes for gpu in node.gpus]
    slices = [each for gpu in gpus for each in gpu.slices]
    # Runs of this machine have no namespace, and are no containers either.
    is_local = bool(slices) and not any(each.namespace for each in slices)
    containers = {(each.namespace, each.pod, each.container) for each in slices}
    counts = [
        _count(len(gpus), "GPU"),
        _count(len(containers), "run" if is_local else "container"),
    ]
    if view.waiting:
        counts.append(f"{_count(len(view.waiting), 'pod')} waiting")
    place = view.nodes[0].name if len(view.nodes) == 1 else _count(len(view.nodes), "node")
    return f"{place}: {', '.join(counts)}"


def _node(node: NodeView, full_names: bool) -> NodePicture:
    lines: list[Line] = []
    pods = Counter(
        pod
        for pod, _ in {
            ((each.namespace, each.pod), each.container) for gpu in node.gpus for each in gpu.slices
        }
    )
    for gpu in node.gpus:
        lines.append(_gpu_line(gpu))
        lines += (
            _slice_line(each, gpu, full_names or pods[each.namespace, each.pod] > 1)
            for each in gpu.slices
        )
    return NodePicture(node.name, _count(len(node.gpus), "GPU"), tuple(lines))


def _gpu_line(gpu: GpuView) -> Line:
    running = [each for each in gpu.slices if each.is_running]
    used = [each.compute_used_percent for each in running]
    known = [each for each in used if each is not None]
    # The driver counts everybody; where it does not say, those that we know must do.
    percent = gpu.utilization_percent
    if percent is None and (known or not running):
        percent = min(100.0, sum(known))
    held_bytes = sum(
        gpu.memory_bytes if each.memory_limit_bytes is None else each.memory_limit_bytes
        for each in gpu.slices
    )
    return Line(
        name=f"GPU {gpu.index} {gpu.model.removeprefix('NVIDIA ')}".rstrip(),
        memory=_memory_meter(gpu.memory_used_bytes, gpu.memory_bytes, held_bytes),
        compute=Meter(
            _percent(percent),
            None if percent is None else percent / 100,
            _part(sum(each.compute_percent for each in gpu.slices), 100),
        ),
        is_gpu=True,
        is_broken=bool(gpu.unusable),
        uuid=gpu.uuid,
    )


def _slice_line(each: SliceView, gpu: GpuView, with_container: bool) -> Line:
    used = each.compute_used_percent
    share = f"{each.compute_percent:.0f}%"
    return Line(
        name=_name(each, with_container),
        memory=_slice_memory(each, gpu),
        compute=Meter(
            share if not each.is_running else f"{_percent(used).removesuffix('%')}/{share}",
            None if used is None else used / 100,
            _part(each.compute_percent, 100),
        ),
        throttled=_percent(each.throttled_percent) if each.is_running else "planned",
        is_planned=not each.is_running,
        policy=each.policy,
        peak="" if each.memory_peak_bytes is None else format_size(each.memory_peak_bytes),
        refused="" if each.memory_refusals is None else str(each.memory_refusals),
    )


def _name(each: SliceView, with_container: bool) -> str:
    if not each.namespace:  # a run, whose container is its command
        return f"{each.pod} {each.container}".rstrip() if with_container else each.pod
    name = f"{each.namespace}/{each.pod}"
    return f"{name}/{each.container}" if with_container else name


def _slice_memory(each: SliceView, gpu: GpuView) -> Meter:
    limit = each.memory_limit_bytes
    if not each.is_running:
        return Meter("whole" if limit is None else format_size(limit))
    if limit is None:
        return _memory_meter(each.memory_used_bytes, gpu.memory_bytes)
    return _memory_meter(each.memory_used_bytes, limit)


def _memory_meter(used: int | None, limit: int, held: int | None = None) -> Meter:
    unit, size = next((each for each in _UNITS if limit >= each[1]), ("", 1))
    used_text = "?" if used is None else _short(used / size)
    return Meter(
        f"{used_text}/{_short(limit / size)}{unit}" if limit else used_text,
        None if used is None else _part(used, limit),
        None if held is None else _part(held, limit),
    )


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 100 else f"{number:.0f}"


def _part(number: float, whole: float) -> float | None:
    return min(1.0, number / whole) if whole else None


def _percent(number: float | None) -> str:
    return "?" if number is None else f"{number:.0f}%"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _notes(node: NodeView) -> Iterator[str]:
    """What an administrator should know and no bar shows."""
    if node.problem:
        yield f"{node.name}: {node.problem}"
    for gpu in node.gpus:
        if gpu.unusable:
            yield f"GPU {gpu.index} of {node.name} takes nothing new: {gpu.unusable}"
    yield from _slice_notes(each for gpu in node.gpus for each in gpu.slices)


def _slice_notes(slices: Iterable[SliceView]) -> Iterator[str]:
    told = set()
    for each in slices:
        name = _name(each, with_container=bool(each.namespace))
        if each.memory_refusals:
            times = _count(each.memory_refusals, "allocation")
            yield f"{name}: {times} refused at its cap"
        if each.shim_missing and name not in told:
            told.add(name)
            processes = "1 process" if each.shim_missing == 1 else f"{each.shim_missing} processes"
            yield f"{name}: {processes} on the GPU without the shim: nothing limits that"
