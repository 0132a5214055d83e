"""The commands that docs tell an administrator to type: the harness types these, and no others."""

import re
import shlex
from pathlib import Path

from tests.e2e.places import CHECKOUT

__all__ = ["INSTALL_PAGE", "commands", "kubectl_commands"]

INSTALL_PAGE = CHECKOUT / "docs/install.md"


def commands(page: Path, heading: str, block: int = 0) -> list[list[str]]:
    """The words of each command in a console block of a chapter."""
    chapters = re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE)
    [chapter] = [each for each in chapters if each.startswith(f"{heading}\n")]
    blocks = re.findall(r"^```console\n(.+?)^```$", chapter, re.MULTILINE | re.DOTALL)
    lines = [
        line.removeprefix("$ ") for line in blocks[block].splitlines() if line.startswith("$ ")
    ]
    return [shlex.split(line, comments=True) for line in lines]


def kubectl_commands(page: Path, heading: str, block: int = 0) -> list[list[str]]:
    """Arguments of each kubectl among them."""
    return [words for program, *words in commands(page, heading, block) if program == "kubectl"]
