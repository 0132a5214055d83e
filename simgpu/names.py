"""The names of the driver API, read from CUDA's headers into the table names.def.

CUDA's headers may be read but not passed on, so the table is committed and the headers are not:
`python -m simgpu.names` writes it, `python -m simgpu.names --check` says whether it is fresh.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

TABLE = Path(__file__).parent / "src" / "driver" / "names.def"

# Every header with entries of libcuda.so.1 on Linux that comes with the matching typedefs.
TOPICS = ("cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU")

# Types of other vendors' headers that CUDA's headers mention; their shape does not matter here.
FOREIGN = {
    "GL/gl.h": "typedef unsigned GLuint, GLenum;",
    "EGL/egl.h": "typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR; typedef int EGLint;",
    "EGL/eglext.h": "",
    "vdpau/vdpau.h": "typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface;"
    "typedef unsigned VdpGetProcAddress;",
    # Left out of the wheel although its typedefs are in it.
    "cudaProfiler.h": "typedef int CUoutput_mode;\n"
    "CUresult cuProfilerInitialize(const char *, const char *, CUoutput_mode);\n"
    "CUresult cuProfilerStart(void);\nCUresult cuProfilerStop(void);\n",
}

# Entries that cuda-bindings 13.5 looks up and that no header on PyPI declares yet, with the version
# that it asks for.
UNDECLARED = {"cuFabricCpyBatchAsync": 13050, "cuTensorMapSetAllocationClass": 13050}

HEADING = """\
/*
 * Every entry of the driver API: NAME(base name, symbol, first CUDA version, stream variant).
 * Written by `python -m simgpu.names`; sorted by base name, then variant, then version.
 */
"""


class NamesError(Exception):
    """The headers do not say what the table needs; the text says which name."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One exported symbol and the request of cuGetProcAddress that it answers."""

    base: str
    variant: str
    """NONE, PTDS or PTSZ: what the entry takes a null stream for."""
    version: int
    symbol: str

    def row(self) -> str:
        return f"NAME({self.base}, {self.symbol}, {self.version}, {self.variant})\n"


def headers_folder() -> Path:
    """Where the wheel nvidia-cuda-runtime keeps cuda.h."""
    spec = find_spec("nvidia.cu13")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / "include" / "cudaTypedefs.h").exists():
            return Path(folder) / "include"
    raise NamesError("CUDA's headers are missing: install the wheel nvidia-cuda-runtime")


def entries(headers: Path, compiler: str = "cc") -> list[Entry]:
    """Pairs the symbols that the headers declare with the versions that their typedefs name.

    A symbol shows its rank (`_v2`, `_v3`) but not its CUDA version; a typedef shows the version
    but not the symbol. Both are in the same order, so the n-th symbol has the n-th version.
    """
    text = "".join(_preprocessed(headers, topic, compiler) for topic in TOPICS)
    symbols: dict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for symbol in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text):
        base, rank, variant = _parts(symbol)
        symbols[base, variant].add((rank, symbol))
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    for base, version, variant in re.findall(r"\bPFN_(cu[A-Z]\w*?)_v(\d+)(_pt[ds][sz])?\)", text):
        versions[base, _variant(variant)].add(int(version))
    declared = set(_paired(symbols, versions))
    known = {entry.base for entry in declared}
    ahead = {
        Entry(base, "NONE", version, base)
        for base, version in UNDECLARED.items()
        if base not in known
    }
    return sorted(declared | ahead)


def _paired(
    symbols: dict[tuple[str, str], set[tuple[int, str]]],
    versions: dict[tuple[str, str], set[int]],
) -> Iterator[Entry]:
    for key in symbols.keys() | versions.keys():
        declared, versioned = sorted(symbols[key]), sorted(versions[key])
        if len(declared) != len(versioned):
            raise NamesError(f"{key[0]}: symbols {declared} do not pair with {versioned}")
        for (_, symbol), version in zip(declared, versioned, strict=True):
            yield Entry(key[0], key[1], version, symbol)


def _parts(symbol: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(cu\w*?)(?:_v(\d+))?(_pt[ds][sz])?", symbol)
    assert match is not None
    base, rank, variant = match.groups()
    return base, int(rank or 1), _variant(variant)


def _variant(suffix: str | None) -> str:
    return suffix.removeprefix("_").upper() if suffix else "NONE"


def _preprocessed(headers: Path, topic: str, compiler: str) -> str:
    """The declarations of one header and its typedefs, old and per-thread entries included."""
    with tempfile.TemporaryDirectory(prefix="aliquot-names-") as directory:
        for name, content in FOREIGN.items():
            if not (headers / name).exists():
                stand_in = Path(directory) / name
                stand_in.parent.mkdir(exist_ok=True)
                stand_in.write_text(content)
        command = [compiler, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{headers}"]
        # Some of them expect cuda.h to have been included.
        command += [f"-I{directory}", "-include", "cuda.h", str(headers / f"{topic}Typedefs.h")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def table(rows: Iterable[Entry]) -> str:
    return HEADING + "".join(entry.row() for entry in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether it is fresh")
    options = parser.parse_args(arguments)
    try:
        fresh = table(entries(headers_folder()))
    except NamesError as error:
        print(f"names: {error}", file=sys.stderr)
        return 1
    if not options.check:
        TABLE.write_text(fresh)
        return 0
    if not TABLE.exists() or TABLE.read_text() != fresh:
        print("names: names.def is stale; run `python -m simgpu.names`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
