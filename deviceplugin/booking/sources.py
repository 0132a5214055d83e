"""What the agent learns from others: the kubelet's list, its checkpoint, the pods of this node."""

from collections.abc import Callable
from dataclasses import dataclass

from aliquot.protocol.assignment import Assignment
from aliquot.protocol.request import PodRequest

__all__ = ["ContainerKey", "Held", "Holder", "PodView", "SameIds"]

SameIds = Callable[[str, frozenset[str]], frozenset[str]]
"""Takes a resource and ids of it, and has the chance to answer equal ones that are kept anyway."""


@dataclass(frozen=True, slots=True, order=True)
class ContainerKey:
    """A container as the kubelet's pod resources name it."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Held:
    """A container that the kubelet lists, with the ids it holds by resource; maybe none (yet)."""

    key: ContainerKey
    ids: dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Holder:
    """An entry of the kubelet's checkpoint: exact, but also of pods that are gone."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of this node as the API server shows it."""

    namespace: str
    name: str
    uid: str
    request: PodRequest | None
    """None when its annotations make no sense; `refusal` then says why."""
    plan: Assignment | None = None
    actual: Assignment | None = None
    resize: str = ""
    refusal: str = ""
    created_s: float = 0.0
