"""Workloads made from a pod list by one change each, for what public traces do not show."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.placement_files import GPU_MEMORY_UNITS, InputError, Pod
from scheduler_ext.placement import Node

# One draw for all: seeds of a run shuffle arrivals, never the workload.
_SEED = 1
_BLOCK_GPUS = 8
_WHOLE_MILLI = 1000
_PINNED_SHARE = 1 / 3


def vary(pods: list[Pod], nodes: list[Node], variant: str) -> list[Pod]:
    """The pod list with one thing changed; the same list for the same input, always."""
    return VARIANTS[variant](pods, nodes, np.random.default_rng(_SEED))


def _tenths(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """Shares are multiples of a tenth, all equally frequent."""
    return _resized(pods, lambda: 100 * int(rng.integers(1, 10)))


def _halves_and_thirds(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """Shares are halves, thirds and quarters, which leave other rests in every mixture."""
    return _resized(pods, lambda: (500, 330, 250)[int(rng.integers(3))])


def _any_share(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """Every share from 10 to 990 milli may come: hardly two pods are alike."""
    return _resized(pods, lambda: int(rng.integers(10, 991)))


def _memory_apart(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """Each pod's memory share is another pod's compute share."""
    sharing = [pod.request.compute_milli for pod in pods if _shares(pod)]
    memory = iter(rng.permutation(sharing).tolist())
    return [_with_memory(pod, next(memory)) if _shares(pod) else pod for pod in pods]


def _memory_opposite(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """Pods with little compute want much memory, and the reverse."""
    return [
        _with_memory(pod, GPU_MEMORY_UNITS - pod.request.compute_milli) if _shares(pod) else pod
        for pod in pods
    ]


def _pinned_third(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """A third of the GPU pods name one model, each as often as there are GPUs of it."""
    return _pinned(pods, nodes, rng, lambda gpus: gpus)


def _pinned_evenly(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """A third of the GPU pods name one model, the rarest as often as the most frequent."""
    return _pinned(pods, nodes, rng, lambda _: 1)


def _pinned_as_listed(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """A third of the GPU pods name what some pod of the list names, the other pods nothing."""
    named = [pod.request.models for pod in pods if pod.request.models]
    if not named:
        raise InputError("pinned-as-listed needs a pod list in which some pods name models")
    changed: list[Pod] = []
    for pod in pods:
        models: frozenset[str] = frozenset()
        if pod.request.gpus and rng.random() < _PINNED_SHARE:
            models = named[int(rng.integers(len(named)))]
        changed.append(replace(pod, request=replace(pod.request, models=models)))
    return changed


def _half_in_blocks(pods: list[Pod], nodes: list[Node], rng: np.random.Generator) -> list[Pod]:
    """As many of the eight-GPU pods there are, drawn again, as all others ask for together."""
    blocks = [pod for pod in pods if pod.request.gpus == _BLOCK_GPUS]
    if not blocks:
        raise InputError("half-in-blocks needs a pod list with eight-GPU pods")
    others = [pod for pod in pods if pod.request.gpus != _BLOCK_GPUS]
    demand = sum(pod.gpu_milli for pod in others)
    count = round(demand / (_BLOCK_GPUS * _WHOLE_MILLI))
    return others + [blocks[int(rng.integers(len(blocks)))] for _ in range(count)]


VARIANTS: dict[str, Callable[[list[Pod], list[Node], np.random.Generator], list[Pod]]] = {
    "tenths": _tenths,
    "halves-and-thirds": _halves_and_thirds,
    "any-share": _any_share,
    "memory-apart": _memory_apart,
    "memory-opposite": _memory_opposite,
    "pinned-third": _pinned_third,
    "pinned-evenly": _pinned_evenly,
    "pinned-as-listed": _pinned_as_listed,
    "half-in-blocks": _half_in_blocks,
}


def _shares(pod: Pod) -> bool:
    return pod.request.gpus == 1 and pod.request.compute_milli < _WHOLE_MILLI


def _resized(pods: list[Pod], draw: Callable[[], int]) -> list[Pod]:
    changed: list[Pod] = []
    for pod in pods:
        if _shares(pod):
            milli = draw()
            request = replace(pod.request, compute_milli=milli, gpu_memory_units=milli)
            pod = replace(pod, request=request)
        changed.append(pod)
    return changed


def _with_memory(pod: Pod, units: int) -> Pod:
    return replace(pod, request=replace(pod.request, gpu_memory_units=units))


def _pinned(
    pods: list[Pod], nodes: list[Node], rng: np.random.Generator, weigh: Callable[[int], int]
) -> list[Pod]:
    """`weigh` says how often a model is named, by the number of GPUs on nodes that would do."""
    able = {count: _gpus_of_nodes_with(count, nodes) for count in {p.request.gpus for p in pods}}
    changed: list[Pod] = []
    for pod in pods:
        gpus = able[pod.request.gpus]
        if pod.request.gpus and gpus and rng.random() < _PINNED_SHARE:
            weight = np.array([weigh(count) for count in gpus.values()], dtype=np.float64)
            model = list(gpus)[int(rng.choice(len(gpus), p=weight / weight.sum()))]
            pod = replace(pod, request=replace(pod.request, models=frozenset({model})))
        changed.append(pod)
    return changed


def _gpus_of_nodes_with(count: int, nodes: list[Node]) -> dict[str, int]:
    """By model, how many GPUs there are on nodes that have at least so many."""
    models = Counter(gpu.model for node in nodes if len(node.gpus) >= count for gpu in node.gpus)
    return dict(sorted(models.items()))
