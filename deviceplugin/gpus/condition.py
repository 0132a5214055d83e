"""Whether a GPU can be used, decided from what was seen of it; no I/O."""

from dataclasses import dataclass

from deviceplugin.gpus.nvml import Vitals
from deviceplugin.gpus.xids import Meaning, describe, meaning_of

__all__ = ["QUIET_S", "Condition"]

QUIET_S = 15.0
"""How long probes must have passed since a fatal Xid: the driver decides what it advises some
moments after the event, and an error that comes back at once should not let pods in between."""

_ADVICE = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of peer-to-peer traffic",
    4: "a drain and a reset of the GPU",
    5: "a recovery of the IMEX domain",
    6: "a reset of the PCIe bus",
    7: "a reboot of the system",
}


@dataclass(slots=True)
class Condition:
    """One GPU over time. All times are of one clock that never goes back."""

    quiet_s: float = QUIET_S
    unusable: str = ""
    """Why nothing new may start there; empty when something may."""
    fatal_xid: int | None = None
    _fatal_at_s: float = 0.0

    def note_xid(self, xid: int, now_s: float) -> None:
        if meaning_of(xid) is not Meaning.FATAL:
            return
        self.fatal_xid, self._fatal_at_s = xid, now_s
        self.unusable = describe(xid)

    def note_silence(self, why: str) -> None:
        """A probe was not answered. The Xid that came before it explains more than the silence."""
        self.unusable = describe(self.fatal_xid) if self.fatal_xid is not None else why

    def note_vitals(self, vitals: Vitals, now_s: float) -> None:
        """A probe was answered, which ends an Xid's effect when the driver does not object."""
        if vitals.has_mig:
            self.unusable = "in MIG mode, whose parts only the driver can share out"
        elif vitals.recovery_action:
            advice = _ADVICE.get(vitals.recovery_action, f"action {vitals.recovery_action}")
            cause = f"{describe(self.fatal_xid)}; " if self.fatal_xid is not None else ""
            self.unusable = f"{cause}the driver asks for {advice}"
        elif self.fatal_xid is not None and now_s - self._fatal_at_s < self.quiet_s:
            self.unusable = describe(self.fatal_xid)
        else:
            self.fatal_xid = None
            self.unusable = ""
