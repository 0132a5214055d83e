"""The table of hostile pods in docs/security.md says what the end-to-end tests show."""

import re
from pathlib import Path

from tests.e2e.attacks import NO_GPU, PREVENTED, REPORTED

PAGE = Path(__file__).parents[2] / "docs/security.md"


def rows() -> dict[str, str]:
    """What becomes of a pod that tries something."""
    section = PAGE.read_text().partition("## Hostile pods\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) \| .+ \| (\w+) \|$", section, re.MULTILINE))


def test_every_attempt_has_its_row() -> None:
    found = rows()
    assert {found.get(how) for how in (*PREVENTED, *NO_GPU)} == {"prevented"}
    assert {found.get(how) for how in REPORTED} == {"detected"}
