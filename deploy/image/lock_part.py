"""Prints the part of requirements.lock that some of its packages need, hashes and all.

The image shall have what the product needs and nothing that only its developers do. Which package
needs which stands in the lock's own comments, so nothing has to be resolved again.
"""

import re
import sys
from pathlib import Path

__all__ = ["blocks", "part"]


def blocks(lock: str) -> dict[str, str]:
    """What stands in the lock for each package, by its name."""
    texts = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {text.split("==")[0]: text for text in texts if "==" in text}


def needed_by(block: str) -> set[str]:
    """Who needs it: packages, or `aliquot` for what the product itself names."""
    comments = re.findall(r"^    # +(?:via +)?(\S.*)$", block, flags=re.MULTILINE)
    return {"aliquot" if text == "aliquot (pyproject.toml)" else text for text in comments}


def part(lock: str, roots: set[str]) -> str:
    """The blocks of `roots` and of all that they need; `aliquot` is the product."""
    known = blocks(lock)
    if unknown := roots - known.keys() - {"aliquot"}:
        raise SystemExit(f"requirements.lock has no {', '.join(sorted(unknown))}")
    wanted, before = set(roots), set[str]()
    while wanted != before:
        before = set(wanted)
        wanted |= {name for name, block in known.items() if needed_by(block) & before}
    return "".join(block for name, block in known.items() if name in wanted)


if __name__ == "__main__":
    print(part(Path(sys.argv[1]).read_text(), set(sys.argv[2:])), end="")
