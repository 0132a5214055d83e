"""Short runs of the fuzzers in this folder; `-runs=-1` on their programs fuzzes for ever."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
CLANG = next(
    (
        found
        for name in ("clang", "clang-14", "clang-16", "clang-19")
        if (found := shutil.which(name))
    ),
    None,
)
INPUTS = 15_000


@pytest.mark.skipif(CLANG is None, reason="clang is not installed, and libFuzzer comes with it")
@pytest.mark.parametrize("name", ["limits", "usage"])
def test_a_reader_survives_whatever_it_is_given(name: str, tmp_path: Path) -> None:
    program = tmp_path / f"fuzz_{name}"
    subprocess.run(
        [
            *(str(CLANG), "-std=gnu11", "-O1", "-g"),
            *("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"),
            *("-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT / 'shim' / 'include'}"),
            *(FOLDER / f"fuzz_{name}.c", ROOT / "shim" / "src" / f"{name}.c", "-o", program),
        ],
        check=True,
    )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    done = subprocess.run(
        [program, f"-runs={INPUTS}", "-seed=1", "-max_len=66000", "-timeout=60", corpus],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # The checksum is passed: otherwise nothing behind it was ever tried.
    assert any(path.stat().st_size >= 1000 for path in corpus.iterdir())
