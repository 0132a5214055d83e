"""The page about what is watched says what the code does."""

import re
from pathlib import Path

from deviceplugin.gpus.condition import QUIET_S
from deviceplugin.gpus.xids import XIDS, Meaning
from deviceplugin.tenants.judgement import SLACK_BYTES, Kind
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER, LOOKS
from deviceplugin.tenants.watch import LOOK_S

PAGE = (Path(__file__).parents[3] / "docs" / "watching.md").read_text()


def numbers(text: str) -> list[int]:
    """Of `39-41, 85`."""
    found = []
    for part in text.split(", "):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_the_table_of_xids_is_the_codes() -> None:
    rows = re.findall(r"^\| ([\d, -]+) \| (.+?) \| (.+?) \|$", PAGE, re.M)
    assert {xid: (text, fate) for some, text, fate in rows for xid in numbers(some)} == {
        xid: (text, "is withdrawn" if meaning is Meaning.FATAL else "goes on")
        for xid, (meaning, text) in XIDS.items()
    }


def test_every_kind_of_breach_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.M)) == {kind.value for kind in Kind}


def test_its_numbers_are_the_codes() -> None:
    assert f"in the last {QUIET_S:g} seconds" in PAGE
    assert f"{SLACK_BYTES >> 20} MiB for every process" in PAGE
    assert LOOK_S == 1.0
    assert "Once a second the agent asks NVML" in PAGE
    assert (CONFIRMED_AFTER, LOOKS) == (3, 5)
    assert "in three of the last five looks" in PAGE
