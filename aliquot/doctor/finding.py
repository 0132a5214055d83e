"""What a check has found: how bad it is, what was seen, what to do."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level", "fail", "good", "note", "warn"]


class Level(Enum):
    GOOD = "ok"
    NOTE = "note"
    """Neither good nor bad: something that does not apply here."""
    WARN = "warning"
    FAIL = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    text: str
    advice: str = ""


def good(subject: str, text: str) -> Finding:
    return Finding(Level.GOOD, subject, text)


def note(subject: str, text: str) -> Finding:
    return Finding(Level.NOTE, subject, text)


def warn(subject: str, text: str, advice: str) -> Finding:
    return Finding(Level.WARN, subject, text, advice)


def fail(subject: str, text: str, advice: str) -> Finding:
    return Finding(Level.FAIL, subject, text, advice)
