"""What must be true of a node at every moment, and short ways to ask about it."""

from pathlib import Path

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from shim import limits
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.runoptions import RunOptions

__all__ = ["UNIT_BYTES", "assert_sound", "caps_of", "gpus_of", "shares_of"]

UNIT_BYTES = 256 << 20


def gpu_of(one_id: str) -> str:
    """`m-<uuid>-<n>`: the GPU is in every id."""
    return one_id.split("-", 1)[1].rpartition("-")[0]


def gpus_of(kubelet: Kubelet, pod: Pod, name: str = "main") -> set[str]:
    """The GPUs of a container; both halves must be of the same ones."""
    found = {
        frozenset(gpu_of(each) for each in ids)
        for resource, ids in kubelet.ids_of(pod, name).items()
        if resource in (MEMORY_RESOURCE, COMPUTE_RESOURCE)
    }
    assert len(found) == 1, f"{pod.name}/{name} is torn between {found}"
    return set(found.pop())


def assert_sound(kubelet: Kubelet, *pods: Pod) -> None:
    """No id belongs to two containers at once, and no container is torn between GPUs."""
    holders: dict[str, str] = {}
    for pod in pods:
        for container in pod.containers:
            if not container.limits:
                continue
            gpus_of(kubelet, pod, container.name)
            for ids in kubelet.ids_of(pod, container.name).values():
                for each in ids:
                    other = holders.setdefault(each, pod.uid)
                    assert other == pod.uid, f"{each} is held twice"


def caps_of(options: RunOptions) -> dict[str, int | None]:
    """The memory caps that the container's shim will read, by GPU."""
    path = Path(options.mounted("/etc/aliquot/memory/limits"))
    return {each.uuid: each.limit_bytes for each in limits.read(path, limits.Kind.MEMORY).devices}


def shares_of(options: RunOptions) -> dict[str, int]:
    """The compute shares in hundredths of a percent, by GPU."""
    path = Path(options.mounted("/etc/aliquot/compute/limits"))
    return {each.uuid: each.share for each in limits.read(path, limits.Kind.COMPUTE).devices}
