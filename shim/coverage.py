"""Compares the hook table with NVIDIA's headers: nothing that takes memory may be missing.

`python -m shim.coverage` says what is; the same module writes the table in docs/memory.md.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shim import left_alone

__all__ = ["CoverageError", "Row", "Symbol", "driver_symbols", "gaps", "headers", "rows"]

TABLE = Path(__file__).parent / "src" / "hooks.def"

# What a name has in it when its call takes or gives back memory, keeps some alive, or runs work.
TAKES = re.compile(
    "Alloc|Free|Create|Destroy|Launch|Load|Unload|Import|Export|Map(?!ped)|Unmap|Open|Close|Retain"
    "|Release|Reset|Trim|Reserve|[Bb]ind|Attach|Detach|Upload|Instantiate|[Rr]egister|Prefetch"
    "|GraphAdd|Clone|SetLimit|Connect|Disconnect|Checkpoint|ExecUpdate|GetMapped|IpcGetMem"
    "|MulticastAdd"
)
# The same for what shows memory, devices or processes of others.
SHOWS = re.compile(
    "Memory|Process|HandleBy|DeviceHandle|GetCount|GetIndex|Accounting|DeviceCount|TopologyNearest"
    "|TopologyGpuSet|TopologyCommon|UnitGetDevices"
)
# Types of graphics headers that CUDA's headers mention and the wheels do not bring.
FOREIGN = {
    "GL/gl.h": "typedef unsigned GLuint, GLenum;",
    "EGL/egl.h": "typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR; typedef int EGLint;",
    "EGL/eglext.h": "",
    "vdpau/vdpau.h": "typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface;"
    "typedef unsigned VdpGetProcAddress;",
}
TOPICS = ("cuda", "cudaGL", "cudaEGL", "cudaVDPAU")


class CoverageError(Exception):
    """The comparison cannot be made; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the hook table."""

    symbol: str
    since: int
    treatment: str
    words: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the driver API as the headers have it."""

    name: str
    base: str
    since: int


def rows(text: str | None = None) -> list[Row]:
    """The hook table; NVML's rows have no version."""
    text = TABLE.read_text() if text is None else text
    pattern = r'^(?:DRIVER\((\w+), (\d+)|NVML\((\w+)), (\w+), "(.*)"\)$'
    found = [
        Row(driver or nvml, int(since or 0), treatment, words)
        for driver, since, nvml, treatment, words in re.findall(pattern, text, re.M)
    ]
    if len(found) != len(re.findall(r"^(?:DRIVER|NVML)\(", text, re.M)):
        raise CoverageError("hooks.def has a line that is not understood")
    return found


def headers() -> Path:
    """Where the wheels nvidia-cuda-runtime and nvidia-nvml-dev keep their headers."""
    package = find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for found in Path(folder).glob("*/include/cudaTypedefs.h"):
            if found.with_name("nvml.h").exists():
                return found.parent
    raise CoverageError(
        "NVIDIA's headers are missing: install the wheels nvidia-cuda-runtime and nvidia-nvml-dev"
    )


def driver_symbols(folder: Path, compiler: str = "cc") -> list[Symbol]:
    """Every symbol of the driver API with the CUDA version that it appeared in.

    A declaration shows the rank of a symbol (`_v2`), a typedef its version; both are in the same
    order for each name and kind of default stream.
    """
    text = "".join(_preprocessed(folder, topic, compiler) for topic in TOPICS)
    ranked: dict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for symbol in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text):
        base, rank, variant = _parts(symbol)
        ranked[base, variant].add((rank, symbol))
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    for base, version, variant in re.findall(r"\bPFN_(cu[A-Z]\w*?)_v(\d+)(_pt[ds][sz])?\)", text):
        versions[base, variant].add(int(version))
    return [
        Symbol(symbol, base, since)
        for (base, variant), symbols in sorted(ranked.items())
        for (_, symbol), since in zip(sorted(symbols), sorted(versions[base, variant]), strict=True)
    ]


def nvml_symbols(folder: Path) -> set[str]:
    text = (folder / "nvml.h").read_text()
    return set(re.findall(r"\bDECLDIR\s+(nvml\w+)\s*\(", text))


def gaps(table: list[Row], driver: list[Symbol], nvml: set[str]) -> Iterator[str]:
    """What is wrong, a sentence each."""
    hooked = {row.symbol: row for row in table}
    allowed = {name for names in left_alone.DRIVER.values() for name in names}
    allowed_nvml = {name for names in left_alone.NVML.values() for name in names}
    bases = {symbol.base for symbol in driver}
    hooked_bases = {symbol.base for symbol in driver if symbol.name in hooked}
    for symbol in driver:
        row = hooked.get(symbol.name)
        if row is not None and row.since != symbol.since:
            yield f"{symbol.name} is of CUDA {symbol.since}, not {row.since}"
        if row is None and symbol.base in hooked_bases:
            yield f"{symbol.name} is not hooked, but other versions of it are"
        elif row is None and TAKES.search(symbol.name) and symbol.base not in allowed:
            yield f"{symbol.name} is neither hooked nor left alone with a reason"
    for name in sorted(nvml):
        if SHOWS.search(name) and name not in hooked and _nvml_base(name) not in allowed_nvml:
            yield f"{name} is neither hooked nor left alone with a reason"
    known = {symbol.name for symbol in driver} | nvml
    for name in hooked.keys() - known:
        yield f"{name} is hooked, but no header has it"
    for name in sorted(allowed - bases) + sorted(allowed_nvml - {*map(_nvml_base, nvml)}):
        yield f"{name} is left alone, but no header has it"
    for name in sorted(allowed & hooked_bases) + sorted(allowed_nvml & hooked.keys()):
        yield f"{name} is left alone and hooked"


def _nvml_base(name: str) -> str:
    return re.sub(r"_v\d+$", "", name)


def _parts(symbol: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(cu\w*?)(?:_v(\d+))?(_pt[ds][sz])?", symbol)
    assert match is not None
    base, rank, variant = match.groups()
    return base, int(rank or 1), variant or ""


def _preprocessed(folder: Path, topic: str, compiler: str) -> str:
    """A header and its typedefs, old versions included."""
    with tempfile.TemporaryDirectory(prefix="aliquot-coverage-") as directory:
        for name, content in FOREIGN.items():
            stand_in = Path(directory) / name
            stand_in.parent.mkdir(exist_ok=True)
            stand_in.write_text(content)
        command = [compiler, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{folder}"]
        command += [f"-I{directory}", "-include", "cuda.h", str(folder / f"{topic}Typedefs.h")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments: list[str] | None = None) -> int:
    from shim import memory_page

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write docs/memory.md anew")
    options = parser.parse_args(arguments)
    try:
        table = rows()
        if options.write:
            memory_page.PAGE.write_text(memory_page.page(table))
        folder = headers()
        problems = list(gaps(table, driver_symbols(folder), nvml_symbols(folder)))
    except CoverageError as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 1
    if not memory_page.PAGE.exists() or memory_page.PAGE.read_text() != memory_page.page(table):
        problems.append("docs/memory.md is stale: run `python -m shim.coverage --write`")
    for problem in problems:
        print(f"coverage: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
