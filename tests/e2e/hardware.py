"""Simulated GPUs in a machine, found as NVIDIA's are: device nodes, and libraries of a version."""

import json
import sys
from pathlib import Path

from simgpu.node import DRIVER_VERSION
from tests.e2e.archives import read_file
from tests.e2e.node import Node
from tests.e2e.nvidia_runtime import CONTROL_MINOR, DRIVER, HARDWARE, LIBRARIES, MAJOR
from tests.e2e.places import CHECKOUT

__all__ = ["STATE", "equip", "unequip"]

STATE = HARDWARE / "node"


def equip(node: Node, product: Path, folder: Path) -> None:
    """Gives a machine what NVIDIA's driver would; `product` is the archive with our image."""
    run = node.machine.run
    run("mkdir", "-p", DRIVER)
    for name in LIBRARIES:
        library, versioned = folder / name, DRIVER / f"{Path(name).stem}.{DRIVER_VERSION}"
        library.write_bytes(read_file(product, f"simgpu/lib/{name}")[1])
        run("install", library, versioned)
        run("ln", "-sf", versioned.name, DRIVER / name)
    aliquot = ("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "aliquot.cli")
    simulate = ("sim", "host", "--gpus=2xA100-80G", f"--name={node.name}", f"--state={STATE}")
    run(*aliquot, *simulate, f"--libraries={folder / 'unused'}")
    status = json.loads(run(*aliquot, "sim", "status", "-o", "json", f"--state={STATE}"))
    minors = {device["uuid"]: device["index"] for device in status["devices"]}
    (folder / "minors").write_text(json.dumps(minors))
    run("install", folder / "minors", HARDWARE / "minors")
    for device, minor in _devices(minors).items():
        run("mknod", "-m", "666", device, "c", str(MAJOR), str(minor))


def unequip(node: Node) -> None:
    minors = json.loads(node.machine.run("cat", HARDWARE / "minors"))
    node.machine.run("rm", "-rf", HARDWARE, "/run/nvidia", *_devices(minors))


def _devices(minors: dict[str, int]) -> dict[str, int]:
    gpus = {f"/dev/nvidia{minor}": minor for minor in minors.values()}
    return {**gpus, "/dev/nvidiactl": CONTROL_MINOR}
