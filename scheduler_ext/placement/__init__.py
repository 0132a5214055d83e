"""The placement decision: which node and which of its GPUs a request takes; pure, over arrays."""

from scheduler_ext.placement.choice import policy_named
from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.decision import Decision, Placer
from scheduler_ext.placement.fit import eligible_devices, fitting
from scheduler_ext.placement.fragmentation import Fragmentation
from scheduler_ext.placement.inventory import Gpu, Link, Node
from scheduler_ext.placement.policy import Pack, Policy, Spread
from scheduler_ext.placement.request import Request
from scheduler_ext.placement.several import PodPlacer, PodScores

__all__ = [
    "Cluster",
    "Decision",
    "Fragmentation",
    "Gpu",
    "Link",
    "Node",
    "Pack",
    "Placer",
    "PodPlacer",
    "PodScores",
    "Policy",
    "Request",
    "Spread",
    "eligible_devices",
    "fitting",
    "policy_named",
]
