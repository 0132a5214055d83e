"""The library itself: silent in every program, needing only libc, on every libc it promises."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nativebuild import Toolchain, artifacts
from nativebuild import build as build_artifact
from tests.capped import PATIENCE_S, ROOT, SHIM
from tests.native.road_programs import SOURCES, build

PROGRAMS = {
    "true": ["/bin/true"],
    "bash": ["bash", "-c", "echo hello | (read word; echo $word)"],
    "perl": ["perl", "-e", "use POSIX; print 1"],
    "git": ["git", "--version"],
    "node": ["node", "-e", "console.log(require('os').cpus().length > 0)"],
    "java": ["java", "-XshowSettings:none", "-version"],
    "python": [sys.executable, "-c", "import ctypes, socket, threading, ssl; print(1)"],
}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_silent_in_programs_without_cuda(name: str) -> None:
    command = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    bare, preloaded = run(command), run(command, LD_PRELOAD=str(SHIM))
    assert (preloaded.returncode, preloaded.stdout) == (bare.returncode, bare.stdout)
    assert preloaded.stderr == bare.stderr


def test_needs_only_libc() -> None:
    dynamic = run(["readelf", "-dW", str(SHIM)]).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"]
    assert "TEXTREL" not in dynamic
    assert "BIND_NOW" in dynamic
    assert not re.search(r"R(UN)?PATH", dynamic)


def test_exports_only_what_it_replaces() -> None:
    symbols = run(["readelf", "--dyn-syms", "-W", str(SHIM)]).stdout
    exported = {
        words[7].partition("@")[0]
        for words in map(str.split, symbols.splitlines())
        if len(words) > 7 and words[4] in ("GLOBAL", "WEAK") and words[6] != "UND"
    }
    rows = re.findall(r"^(?:DRIVER|NVML)\((\w+),", (ROOT / "shim/src/hooks.def").read_text(), re.M)
    assert exported == {*rows, "dlsym", "dlvsym", "dlopen", "dlmopen"}


def test_a_constructor_that_could_fail_does_not_exist() -> None:
    sections = run(["readelf", "-SW", str(SHIM)]).stdout
    # frame_dummy, which every library has, and nothing else.
    size = int(re.search(r"\.init_array\s+INIT_ARRAY\s+\w+\s+\w+\s+(\w+)", sections)[1], 16)
    assert size == 8


def _built_with(compiler: str, folder: Path) -> Path:
    toolchain = Toolchain(tuple(compiler.split()))
    (library,) = (artifact for artifact in artifacts() if artifact.name == "libaliquot")
    build_artifact(library, toolchain, folder)
    return folder / library.target


def zig() -> str:
    if subprocess.run([sys.executable, "-c", "import ziglang"], capture_output=True).returncode:
        pytest.skip("ziglang is not installed")
    return f"{sys.executable} -m ziglang cc"


@pytest.mark.slow
def test_the_release_build_runs_on_old_and_new_libcs(tmp_path: Path) -> None:
    """Compiled against glibc 2.17, it is used like the other one, and loads on musl."""
    library = _built_with(f"{zig()} -target x86_64-linux-gnu.2.17", tmp_path)
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run(["readelf", "-VW", str(library)]).stdout)
    assert max(tuple(map(int, version)) for version in versions) <= (2, 17)
    assert re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-dW", str(library)]).stdout) == [
        "libc.so.6"
    ]
    done = run([sys.executable, "-c", "print(1)"], LD_PRELOAD=str(library))
    assert (done.stdout, done.stderr) == ("1\n", "")
    _loads_on_musl(library)


def _loads_on_musl(library: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    program = build("harmless.c", compiler="musl-gcc")
    done = run([str(program)], LD_PRELOAD=str(library))
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here, 12 found\n", "")


def test_loads_harmlessly_on_musl() -> None:
    _loads_on_musl(SHIM)


@pytest.mark.slow
def test_runs_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    for tool in (compiler, emulator):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    library = _built_with(compiler, tmp_path)
    program = tmp_path / "harmless"
    command = [compiler, "-O1", str(SOURCES / "harmless.c"), "-o", str(program), "-ldl"]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    done = run(
        [emulator, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={library}", str(program)]
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here, 12 found\n", "")
