"""The policies that a pod or the cluster's default may name."""

from scheduler_ext.placement.fragmentation import Fragmentation
from scheduler_ext.placement.policy import Pack, Policy, Spread

_POLICIES: dict[str, type[Policy]] = {
    "pack": Pack,
    "spread": Spread,
    "fragmentation": Fragmentation,
}


def policy_named(name: str) -> Policy:
    """The policy of that name, which has seen no pods yet."""
    if name not in _POLICIES:
        raise ValueError(f"placement {name!r} is none of {', '.join(_POLICIES)}")
    return _POLICIES[name]()
