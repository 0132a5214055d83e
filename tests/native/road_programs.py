"""Builds the programs and libraries in roads/, each once in a test process."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from simgpu.node import LIBRARIES
from tests.capped import ROOT

SOURCES = Path(__file__).parent / "roads"

LINK = (f"-L{LIBRARIES}", "-l:libcuda.so.1")
"""For what is linked with the driver."""

SHARED = ("-shared", "-fPIC")


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="aliquot-roads-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def build(source: str, *flags: str, compiler: str = "cc", name: str | None = None) -> Path:
    """roads/SOURCE compiled with these flags; `name` matters for libraries found by name."""
    target = Path(tempfile.mkdtemp(dir=_folder())) / (name or Path(source).stem)
    command = [compiler, "-O1", f"-I{ROOT / 'shim' / 'abi'}", f"-I{SOURCES}"]
    command += [str(SOURCES / source), "-o", str(target), *flags, "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return target
