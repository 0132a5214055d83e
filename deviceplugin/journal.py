"""The agent's memory over restarts: an fsynced file of checked records."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Journal"]


@dataclass(slots=True)
class Journal:
    path: Path
