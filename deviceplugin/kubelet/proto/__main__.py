"""Generates the message classes from the .proto files, or says which of them are stale."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parents[2]
HEADER = '# ruff: noqa\n# fmt: off\n# mypy: disable-error-code="type-arg"\n'


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        if arguments == ["--check"]:
            return _compare(fresh)
        for path in fresh:
            shutil.copyfile(path, HERE / path.name)
    return 0


def generate(folder: Path) -> list[Path]:
    """The modules that belong to the .proto files, written below `folder`."""
    # Paths from the root, so that generated modules import each other by their full names.
    sources = [str(path.relative_to(ROOT)) for path in sorted(HERE.glob("*.proto"))]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I."]
        + [f"--{kind}_out={folder}" for kind in ("python", "pyi")]
        + sources,
        cwd=ROOT,
        check=True,
    )
    made = sorted((folder / HERE.relative_to(ROOT)).iterdir())
    for path in made:
        path.write_text(HEADER + path.read_text())
    return made


def _compare(fresh: list[Path]) -> int:
    stale = [
        path.name
        for path in fresh
        if not (HERE / path.name).exists() or (HERE / path.name).read_bytes() != path.read_bytes()
    ]
    if stale:
        print(
            f"stale: {', '.join(stale)}; run `python -m deviceplugin.kubelet.proto`",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
