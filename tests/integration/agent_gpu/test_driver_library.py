"""NVML is found below the host's files, as the node agent sees them with CDI."""

import shutil
import subprocess
import sys
from pathlib import Path

from simgpu.node import LIBRARIES
from tests.simulated import simulated_node

ASK = """
import sys
from pathlib import Path
from deviceplugin.gpus.nvml import Nvml, NvmlError
nvml = Nvml(Path(sys.argv[1]))
try:
    nvml.open()
    print("gpus", nvml.count())
except NvmlError as error:
    print(error)
"""


def ask(host: Path) -> str:
    with simulated_node("2xA100-80G") as node:
        env = {**node.env, "LD_LIBRARY_PATH": ""}
        ran = subprocess.run(
            [sys.executable, "-c", ASK, host], env=env, check=True, capture_output=True, text=True
        )
    return ran.stdout.strip()


def test_the_hosts_library_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    shutil.copy(LIBRARIES / "libnvidia-ml.so.1", folder / "libnvidia-ml.so.580.65.06")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.65.06")
    assert ask(tmp_path) == "gpus 2"


def test_a_host_without_one_is_named(tmp_path: Path) -> None:
    assert "libnvidia-ml.so.1 was not found" in ask(tmp_path)
