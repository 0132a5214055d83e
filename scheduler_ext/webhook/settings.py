"""What an administrator can set about admission."""

from dataclasses import dataclass
from enum import Enum

from aliquot.protocol import names

__all__ = ["InitContainerRule", "WebhookSettings"]


class InitContainerRule(Enum):
    """The kubelet hands ids of a finished init container to the app containers unasked."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    unit_mib: int = 256
    """How large a memory unit is; the node agents' value."""
    default_compute_percent: int = 10
    """For containers that name memory only."""
    scheduler_name: str = names.SCHEDULER_NAME
    """Who places our pods; empty leaves them to the scheduler that they name themselves."""
    runtime_class: str = ""
    """For pods that name none, where only NVIDIA's runtime brings GPUs in; empty adds none."""
    init_containers: InitContainerRule = InitContainerRule.REFUSE
    shim_off_namespaces: frozenset[str] = frozenset()
    """Where pods may run without their caps."""
    plan_writers: frozenset[str] = frozenset(
        {"system:serviceaccount:aliquot-system:aliquot-extender"}
    )
    actual_writers: frozenset[str] = frozenset(
        {"system:serviceaccount:aliquot-system:aliquot-agent"}
    )

    def __post_init__(self) -> None:
        if self.unit_mib < 1:
            raise ValueError(f"a memory unit cannot have {self.unit_mib} MiB")
        if not 1 <= self.default_compute_percent <= 100:
            raise ValueError(
                f"the default share must be 1 to 100 percent, not {self.default_compute_percent}"
            )
