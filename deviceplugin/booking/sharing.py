"""How this node's GPUs are divided: what an administrator may set and the ledger has to know."""

from dataclasses import dataclass

from shim.limits import Policy

__all__ = ["MIB", "POLICIES", "Sharing"]

MIB = 1 << 20

POLICIES = {policy.name.lower().replace("_", "-"): policy for policy in Policy}


@dataclass(frozen=True, slots=True)
class Sharing:
    unit_bytes: int = 256 * MIB
    """How much memory one id stands for."""
    kept_back_bytes: int = 0
    """Of every GPU, for what the driver itself needs; never advertised."""
    compute_percent: int = 100
    """Ids of compute per GPU; more than 100 over-commits."""
    default_policy: str = "burst"
    """For pods that name none."""
    shim_off_namespaces: frozenset[str] = frozenset()
    """Where `aliquot.dev/shim: "off"` is honoured."""

    @property
    def unit_mib(self) -> int:
        return self.unit_bytes // MIB
