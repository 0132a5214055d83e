"""What of a view somebody wants to see, and in which order."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from msgspec.structs import replace

from aliquot.protocol.view import ClusterView, GpuView, NodeView, SliceView

__all__ = ["ORDERS", "Selection", "select"]

ORDERS = ("name", "memory", "compute", "throttled")


@dataclass(frozen=True, slots=True)
class Selection:
    """Whatever is empty lets everything through."""

    name: str = ""
    """Part of NAMESPACE/POD/CONTAINER."""
    namespace: str = ""
    node: str = ""
    """A name, or a pattern such as `gpu-*`."""
    gpu: str = ""
    """A number or a uuid."""
    order: str = "name"

    @property
    def is_of_containers(self) -> bool:
        return bool(self.name or self.namespace)


def select(view: ClusterView, wanted: Selection) -> ClusterView:
    """GPUs without any container that was asked for are left out, if containers were asked for."""
    nodes = [_select_gpus(node, wanted) for node in view.nodes if _is_node(node, wanted)]
    if wanted.is_of_containers or wanted.gpu:
        nodes = [node for node in nodes if node.gpus]
    waiting = () if wanted.node or wanted.gpu else view.waiting
    return replace(
        view,
        nodes=tuple(sorted(nodes, key=lambda node: (*_worth(node.gpus, wanted), node.name))),
        waiting=tuple(each for each in waiting if _is_named(each.namespace, each.pod, wanted)),
    )


def _select_gpus(node: NodeView, wanted: Selection) -> NodeView:
    gpus = [_select_slices(gpu, wanted) for gpu in node.gpus if _is_gpu(gpu, wanted)]
    if wanted.is_of_containers:
        gpus = [gpu for gpu in gpus if gpu.slices]
    return replace(
        node, gpus=tuple(sorted(gpus, key=lambda gpu: (*_worth((gpu,), wanted), gpu.index)))
    )


def _select_slices(gpu: GpuView, wanted: Selection) -> GpuView:
    kept = [
        each
        for each in gpu.slices
        if _is_named(each.namespace, f"{each.pod}/{each.container}", wanted)
    ]
    measure = _MEASURES.get(wanted.order)

    def key(each: SliceView) -> tuple[object, ...]:
        value = measure(each) if measure is not None else None
        names = (each.namespace, each.pod, each.container)
        # What is only planned uses nothing yet, and what is not known is not the most of anything.
        return (not each.is_running, value is None, -(value or 0), *names)

    return replace(gpu, slices=tuple(sorted(kept, key=key)))


_MEASURES: dict[str, Callable[[SliceView], float | None]] = {
    "memory": lambda each: each.memory_used_bytes,
    "compute": lambda each: each.compute_used_percent,
    "throttled": lambda each: each.throttled_percent,
}


def _worth(gpus: tuple[GpuView, ...], wanted: Selection) -> tuple[float]:
    """Where nodes and GPUs belong: those with most of what is sorted by come first."""
    measure = _MEASURES.get(wanted.order)
    if measure is None:
        return (0.0,)
    return (-sum(measure(each) or 0.0 for gpu in gpus for each in gpu.slices),)


def _is_node(node: NodeView, wanted: Selection) -> bool:
    return not wanted.node or fnmatchcase(node.name, wanted.node)


def _is_gpu(gpu: GpuView, wanted: Selection) -> bool:
    return not wanted.gpu or wanted.gpu.lower() in (str(gpu.index), gpu.uuid.lower())


def _is_named(namespace: str, name: str, wanted: Selection) -> bool:
    if wanted.namespace and namespace != wanted.namespace:
        return False
    return wanted.name in f"{namespace}/{name}".lstrip("/")
