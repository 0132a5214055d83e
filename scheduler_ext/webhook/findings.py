"""What admission found out about an object: why it is refused, and what its author should know."""

from dataclasses import dataclass, field

__all__ = ["Findings", "memory_text"]


@dataclass(slots=True)
class Findings:
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    forbidden: bool = False
    """Whether somebody else could have done it: a question of rights, not of spelling."""

    def refuse(self, text: str) -> None:
        if text not in self.refusals:
            self.refusals.append(text)

    def forbid(self, text: str) -> None:
        self.forbidden = True
        self.refuse(text)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def memory_text(units: int, unit_mib: int) -> str:
    return f"{units} {'unit' if units == 1 else 'units'} ({units * unit_mib / 1024:.6g} GiB)"
