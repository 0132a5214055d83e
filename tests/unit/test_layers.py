"""The import contracts hold, and they can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("aliquot", "bench", "deviceplugin", "scheduler_ext", "shim", "simcluster", "simgpu")

lint_imports = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if not lint_imports.exists():
        pytest.skip("import-linter is not installed")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "src")
        )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def contracts(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [lint_imports, "--no-cache"],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("module", "wrong_import", "broken"),
    [
        ("shim/limits.py", "import simgpu", "Nothing but the demo"),
        ("shim/limits.py", "import aliquot.sizes", "The shim's files know nobody"),
        ("scheduler_ext/__init__.py", "import deviceplugin", "Node side and cluster side"),
        ("scheduler_ext/__init__.py", "import shim", "The cluster side never touches a GPU"),
        ("aliquot/version.py", "import numpy", "Only placement pays for numpy"),
        ("deviceplugin/agent.py", "import aliquot.kubernetes.http", "Only aliquot.kubernetes"),
        ("simgpu/__init__.py", "import bench", "The product imports neither"),
    ],
)
def test_an_import_across_the_layers_breaks_its_contract(
    tree: Path, module: str, wrong_import: str, broken: str
) -> None:
    path = tree / module
    path.write_text(path.read_text() + f"\n{wrong_import}\n")
    done = contracts(tree)
    assert done.returncode != 0
    assert any(broken in line and "BROKEN" in line for line in done.stdout.splitlines())


def test_the_tree_keeps_its_contracts(tree: Path) -> None:
    done = contracts(tree)
    assert done.returncode == 0, done.stdout
