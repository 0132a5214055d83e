"""Where a request fits: which GPUs may carry one of its shares, and which nodes enough of them."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aliquot.protocol.request import Selection
from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.request import Request


def allowed_models(cluster: Cluster, request: Request) -> NDArray[np.bool_]:
    """By model id; one entry more, False, so that an absent GPU's id of -1 finds it."""
    models = cluster.model_names
    return np.array([_admits(request, model) for model in models] + [False])


@lru_cache(maxsize=65536)
def _admits(request: Request, model: str) -> bool:
    return Selection(request.models, request.excluded_models).admits_model(model)


def eligible_devices(
    cluster: Cluster, rows: NDArray[np.int64], request: Request
) -> NDArray[np.bool_]:
    """Rows x devices: the GPU is of a wanted kind and has room for one share."""
    free_memory = cluster.gpu_memory_free.take(rows, 0)
    asked = request.gpu_memory_units
    eligible = kind_of_devices(cluster, rows, request)
    eligible &= cluster.compute_free_milli.take(rows, 0) >= request.compute_milli
    eligible &= free_memory >= (cluster.gpu_memory.take(rows, 0) if asked is None else asked)
    return eligible


def kind_of_devices(
    cluster: Cluster, rows: NDArray[np.int64], request: Request
) -> NDArray[np.bool_]:
    """Rows x devices: the GPU is of a wanted kind, however full."""
    wanted: NDArray[np.bool_] = allowed_models(cluster, request).take(cluster.model.take(rows, 0))
    if request.pins_devices:
        wanted &= _named_devices(cluster, request)[rows]
    return wanted


def fitting(
    cluster: Cluster,
    rows: NDArray[np.int64],
    request: Request,
    eligible: NDArray[np.bool_] | None = None,
    *,
    host: bool = True,
) -> NDArray[np.bool_]:
    """Per row: the node has enough eligible GPUs and, unless others see to it, CPU and memory."""
    fits = cluster.present.take(rows)
    if host:
        fits &= cluster.cpu_free_milli[rows] >= request.cpu_milli
        fits &= cluster.memory_free_mib[rows] >= request.memory_mib
    if request.gpus:
        if eligible is None:
            eligible = eligible_devices(cluster, rows, request)
        fits &= eligible.sum(axis=1) >= request.gpus
    return fits


def _named_devices(cluster: Cluster, request: Request) -> NDArray[np.bool_]:
    named = np.full(cluster.model.shape, not request.uuids, dtype=np.bool_)
    for uuid in request.uuids:
        if uuid in cluster.uuid_at:
            named[cluster.uuid_at[uuid]] = True
    for uuid in request.excluded_uuids:
        if uuid in cluster.uuid_at:
            named[cluster.uuid_at[uuid]] = False
    return named
