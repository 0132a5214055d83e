"""Builds the native parts: shared objects for containers and programs, and cffi bindings.

One road for every way of building (`make native`, wheel, editable install): each artifact is
compiled by one command line of our own, because Python's flags (rpath to libpython, the
distribution's linker options) must not leak into a library that is loaded by other programs.

An artifact is rebuilt when a hash over its sources, headers, flags and compiler differs from the
one it was built with, so neither clocks nor checkouts can leave a stale library behind.
"""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.resolve()

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


class BuildError(Exception):
    """A native part could not be built; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Library:
    """A shared object that programs load and that knows nothing of Python."""

    name: str
    target: str
    sources: tuple[str, ...]
    includes: tuple[str, ...]
    link: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    """Further files the build reads: version scripts, tables."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A cffi module: Python's view of the structs and functions in `cdef` headers."""

    name: str
    module: str
    cdefs: tuple[str, ...]
    prelude: str
    sources: tuple[str, ...]
    includes: tuple[str, ...]
    flags: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return self.module.replace(".", "/") + ".abi3.so"


Artifact = Library | Binding


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The compiler and what it is asked for beyond the artifact's own flags."""

    command: tuple[str, ...]
    flags: tuple[str, ...] = field(default=("-O2", "-g"))

    @classmethod
    def from_environment(cls) -> "Toolchain":
        """ALIQUOT_CC wins over CC, so that a release compiler is asked for by name."""
        command = shlex.split(os.environ.get("ALIQUOT_CC") or os.environ.get("CC") or "cc")
        if shutil.which(command[0]) is None:
            raise BuildError(
                f"no C compiler: `{command[0]}` is not on the PATH. Install one (Debian: gcc), "
                "or name yours in CC."
            )
        return cls(tuple(command), tuple(shlex.split(os.environ.get("ALIQUOT_CFLAGS", "-O2 -g"))))

    def identity(self) -> str:
        return _compiler_version(self.command) + repr(self)


@cache
def _compiler_version(command: tuple[str, ...]) -> str:
    return subprocess.run(
        [*command, "--version"], check=True, capture_output=True, text=True
    ).stdout


def artifacts() -> list[Artifact]:
    """Everything there is to build; each part describes its own."""
    from scheduler_ext.native import ARTIFACTS as OF_EXTENDER
    from shim.native import ARTIFACTS as OF_SHIM
    from simgpu.native import ARTIFACTS as OF_SIMULATOR

    return [*OF_SHIM, *OF_EXTENDER, *OF_SIMULATOR]


def build(artifact: Artifact, toolchain: Toolchain, into: Path = ROOT) -> bool:
    """Builds one artifact below `into` unless what stands there is up to date; tells which."""
    target = into / artifact.target
    stamp = target.with_name(f".{target.name}.inputs")
    digest = _digest(artifact, toolchain)
    if target.exists() and stamp.exists() and stamp.read_text() == digest:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="aliquot-build-") as directory:
        built = _compile(artifact, toolchain, Path(directory))
        # Renamed into place: a process that has the old library mapped keeps the old file.
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(built, fresh)
        fresh.chmod(0o755)
        fresh.replace(target)
    stamp.write_text(digest)
    return True


def _digest(artifact: Artifact, toolchain: Toolchain) -> str:
    digest = hashlib.sha256()
    digest.update(toolchain.identity().encode())
    digest.update(repr(artifact).encode())
    digest.update(Path(__file__).read_bytes())
    if isinstance(artifact, Binding):
        import cffi

        digest.update(cffi.__version__.encode() + sys.version.encode())
    for path in sorted(set(_inputs(artifact))):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _inputs(artifact: Artifact) -> Iterator[Path]:
    yield from _sources(artifact.sources)
    for directory in {*artifact.includes, *(str(Path(p).parent) for p in artifact.sources)}:
        for pattern in ("*.h", "*.def", "*.inc"):
            yield from (ROOT / directory).glob(pattern)
    for name in artifact.inputs:
        yield ROOT / name
    if isinstance(artifact, Binding):
        yield from (ROOT / name for name in artifact.cdefs)


def _sources(patterns: Iterable[str]) -> list[Path]:
    """Every C file that the patterns name; a pattern that names nothing is a mistake."""
    found: list[Path] = []
    for pattern in patterns:
        matches = sorted(ROOT.glob(pattern))
        if not matches:
            raise BuildError(f"no source file matches {pattern}")
        found += matches
    return found


def _compile(artifact: Artifact, toolchain: Toolchain, directory: Path) -> Path:
    sources = _sources(artifact.sources)
    flags = ["-std=gnu11", "-fPIC", "-fvisibility=hidden", *toolchain.flags]
    flags += [f"-I{ROOT / include}" for include in artifact.includes]
    link = ["-shared", "-Wl,-z,relro,-z,now", "-Wl,--as-needed"]
    jobs = [(source, [*flags, *WARNINGS, *artifact.flags]) for source in sources]
    if isinstance(artifact, Binding):
        glue = directory / (artifact.module.rpartition(".")[2] + ".c")
        _emit_binding(artifact, glue)
        # cffi's own output is not held to our warnings.
        jobs.append((glue, [*flags, f"-I{sysconfig.get_path('include')}"]))
    else:
        # An unresolved symbol is a build error, not a crash in a user's container.
        link += ["-Wl,-z,defs", *artifact.link]
    objects = [directory / f"{number}.o" for number in range(len(jobs))]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(
            pool.map(
                lambda job: _run([*toolchain.command, *job[0][1], "-c", job[0][0], "-o", job[1]]),
                zip(jobs, objects, strict=True),
            )
        )
    output = directory / "artifact.so"
    _run([*toolchain.command, *toolchain.flags, *objects, *link, "-o", output, "-ldl"])
    return output


def _emit_binding(artifact: Binding, glue: Path) -> None:
    from cffi import FFI

    ffi = FFI()
    for name in artifact.cdefs:
        ffi.cdef((ROOT / name).read_text())
    ffi.set_source(artifact.module, artifact.prelude, compiler_verbose=False)
    ffi.emit_c_code(str(glue))


def _run(command: list[object]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise BuildError(f"this failed:\n  {shlex.join(words)}\n{done.stderr}{done.stdout}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="what to build; everything when none is named")
    parser.add_argument("--into", type=Path, default=ROOT, help="where the tree is built")
    options = parser.parse_args(arguments)
    known = {artifact.name: artifact for artifact in artifacts()}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}")
    try:
        toolchain = Toolchain.from_environment()
        for name in options.names or known:
            if build(known[name], toolchain, options.into.resolve()):
                print(f"built {known[name].target}")
    except BuildError as error:
        print(f"nativebuild: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # By its name, so that the parts' descriptions are instances of the same classes.
    from nativebuild import main as build_named

    sys.exit(build_named())
