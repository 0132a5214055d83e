"""kube-scheduler's extender messages, which carry Go's field names."""

import msgspec

from scheduler_ext.objects import Pod

__all__ = [
    "BindingArgs",
    "BindingResult",
    "ExtenderArgs",
    "FilterResult",
    "HostPriority",
    "MetaPod",
    "MetaVictims",
    "PreemptionArgs",
    "PreemptionResult",
]


class _GoNames(msgspec.Struct, frozen=True, rename="pascal"):
    pass


class ExtenderArgs(_GoNames, frozen=True):
    """Of filter and prioritize. Without names there are whole nodes, which we do not want."""

    pod: Pod
    node_names: list[str] | None = None


class FilterResult(_GoNames, frozen=True):
    node_names: list[str]
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


class HostPriority(_GoNames, frozen=True, gc=False):
    host: str
    score: int


class BindingArgs(_GoNames, frozen=True):
    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindingResult(_GoNames, frozen=True):
    error: str = ""


class MetaPod(_GoNames, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(_GoNames, frozen=True):
    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(_GoNames, frozen=True):
    pod: Pod
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(_GoNames, frozen=True):
    node_name_to_meta_victims: dict[str, MetaVictims]
