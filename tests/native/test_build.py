"""The native build: nothing stale, nothing silently wrong, only libc needed."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nativebuild

CC = nativebuild.Toolchain.from_environment()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tree of its own: one library and one binding over the same header."""
    monkeypatch.setattr(nativebuild, "ROOT", tmp_path)
    (tmp_path / "part").mkdir()
    (tmp_path / "part/layout.h").write_text("struct pair {\n    int first;\n    int second;\n};\n")
    (tmp_path / "part/answer.c").write_text(
        '#include "layout.h"\n#include "number.def"\n'
        '__attribute__((visibility("default"))) int answer(void)\n{\n    return NUMBER;\n}\n'
    )
    (tmp_path / "part/number.def").write_text("#define NUMBER 42\n")
    return tmp_path


LIBRARY = nativebuild.Library(
    name="answer", target="out/libanswer.so", sources=("part/*.c",), includes=("part",)
)


def binding(prelude: str) -> nativebuild.Binding:
    return nativebuild.Binding(
        name="pair",
        module="_pair",
        cdefs=("part/layout.h",),
        prelude=prelude,
        sources=(),
        includes=("part",),
    )


def test_an_unchanged_tree_is_not_built_again(tree: Path) -> None:
    assert nativebuild.build(LIBRARY, CC, tree)
    assert not nativebuild.build(LIBRARY, CC, tree)


@pytest.mark.parametrize("changed", ["part/answer.c", "part/layout.h", "part/number.def"])
def test_any_changed_input_is_noticed_whatever_its_time_stamp(tree: Path, changed: str) -> None:
    nativebuild.build(LIBRARY, CC, tree)
    path = tree / changed
    before = path.stat()
    path.write_text(path.read_text() + "\n/* changed */\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert nativebuild.build(LIBRARY, CC, tree)


def test_other_flags_are_another_library(tree: Path) -> None:
    nativebuild.build(LIBRARY, CC, tree)
    assert nativebuild.build(LIBRARY, nativebuild.Toolchain(CC.command, ("-O0",)), tree)


def test_a_library_that_was_removed_comes_back(tree: Path) -> None:
    nativebuild.build(LIBRARY, CC, tree)
    (tree / LIBRARY.target).unlink()
    assert nativebuild.build(LIBRARY, CC, tree)


def test_a_failed_build_says_what_failed_and_leaves_nothing_that_looks_fresh(tree: Path) -> None:
    nativebuild.build(LIBRARY, CC, tree)
    good = (tree / "part/answer.c").read_text()
    (tree / "part/answer.c").write_text("int answer(void) { return unknown; }\n")
    with pytest.raises(nativebuild.BuildError, match="unknown"):
        nativebuild.build(LIBRARY, CC, tree)
    (tree / "part/answer.c").write_text(good)
    assert nativebuild.build(LIBRARY, CC, tree)


def test_warnings_are_errors(tree: Path) -> None:
    (tree / "part/answer.c").write_text("int answer(long wide)\n{\n    return wide;\n}\n")
    with pytest.raises(nativebuild.BuildError, match="conversion"):
        nativebuild.build(LIBRARY, CC, tree)


def test_an_unresolved_symbol_is_a_build_error(tree: Path) -> None:
    (tree / "part/answer.c").write_text(
        "int elsewhere(void);\nint answer(void)\n{\n    return elsewhere();\n}\n"
    )
    with pytest.raises(nativebuild.BuildError, match="elsewhere"):
        nativebuild.build(LIBRARY, CC, tree)


def load_pair(tree: Path):
    spec = importlib.util.spec_from_file_location("_pair", tree / "_pair.abi3.so")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_and_c_read_one_layout(tree: Path) -> None:
    nativebuild.build(binding('#include "layout.h"'), CC, tree)
    assert load_pair(tree).ffi.sizeof("struct pair") == 8


def test_a_cdef_that_differs_from_the_c_layout_is_refused(tree: Path) -> None:
    nativebuild.build(binding("struct pair { long first; int second; };"), CC, tree)
    pair = load_pair(tree)
    with pytest.raises(pair.ffi.error, match="wrong"):
        pair.ffi.new("struct pair *")


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_CC", "no-such-compiler -O2")
    with pytest.raises(nativebuild.BuildError, match="no C compiler: `no-such-compiler`"):
        nativebuild.Toolchain.from_environment()


@pytest.mark.slow
def test_sdist_and_wheel_carry_every_native_part(tmp_path: Path) -> None:
    """From the sdist alone, so that a file missing from it is noticed."""
    root = Path(nativebuild.__file__).parent
    build = [sys.executable, "-m", "build", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run([*build, str(root)], check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    assert "cp311-abi3-linux" in wheel.name
    installed = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", installed, wheel],
        check=True,
    )
    for artifact in nativebuild.artifacts():
        assert (installed / artifact.target).exists(), artifact.target
    done = subprocess.run(
        [sys.executable, "-c", "import shim.limits, simgpu.node; print(shim.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(installed))


@pytest.mark.slow
def test_a_release_build_loads_on_any_glibc_from_2_17_on(tmp_path: Path) -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17")
    for artifact in nativebuild.artifacts():
        nativebuild.build(artifact, nativebuild.Toolchain(zig), tmp_path)
        symbols = subprocess.run(
            ["readelf", "--version-info", "-W", tmp_path / artifact.target],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        minors = {int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols)}
        assert minors
        assert max(minors) <= 17, artifact.target
