"""The names of NVML, read from its header into the table src/nvml/names.def.

The header may be read but not passed on, so the table is committed and the header is not:
`python -m simgpu.nvmlnames` writes it, `python -m simgpu.nvmlnames --check` says whether it is
fresh.
"""

import argparse
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["TABLE", "HeaderError", "header", "names", "preprocessed", "table"]

TABLE = Path(__file__).parent / "src" / "nvml" / "names.def"

HEADING = """\
/*
 * Every entry of NVML, old ones included: NAME(symbol).
 * Written by `python -m simgpu.nvmlnames`.
 */
"""


class HeaderError(Exception):
    """NVML's header is not there or not as expected; the text says what to do."""


def header() -> Path:
    """Where the wheel nvidia-nvml-dev keeps nvml.h."""
    spec = find_spec("nvidia.cu13")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (found := Path(folder) / "include" / "nvml.h").exists():
            return found
    raise HeaderError("NVML's header is missing: install the wheel nvidia-nvml-dev")


def preprocessed(compiler: str = "cc") -> str:
    """The header's declarations, with the old names declared instead of defined away."""
    command = [compiler, "-E", "-P", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", str(header())]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(declarations: str) -> list[str]:
    """Every function that the declarations name, sorted."""
    found = re.findall(r"\b(?:nvmlReturn_t|char\s*\*)\s+(nvml[A-Z]\w*)\s*\(", declarations)
    if len(found) < 100:
        raise HeaderError(f"nvml.h declares only {len(found)} functions; is it NVML's?")
    return sorted(set(found))


def table(symbols: list[str]) -> str:
    return HEADING + "".join(f"NAME({symbol})\n" for symbol in symbols)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether it is fresh")
    options = parser.parse_args(arguments)
    try:
        fresh = table(names(preprocessed()))
    except HeaderError as error:
        print(f"nvmlnames: {error}", file=sys.stderr)
        return 1
    if not options.check:
        TABLE.write_text(fresh)
        return 0
    if not TABLE.exists() or TABLE.read_text() != fresh:
        print(
            "nvmlnames: src/nvml/names.def is stale; run `python -m simgpu.nvmlnames`",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
