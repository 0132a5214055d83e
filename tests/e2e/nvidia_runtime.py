#!/usr/bin/python3
"""Stands in for NVIDIA's container runtime: runc, which first gives a container what NVIDIA's gives
by the container's environment: nodes of the GPUs that are named there, and the driver's libraries.

The nodes' numbers and the libraries are those of simulated hardware (`tests/e2e/hardware.py`).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

RUNC = "/usr/sbin/runc"
HARDWARE = Path("/run/simulated-hardware")
DRIVER = Path("/run/nvidia/driver/usr/lib/x86_64-linux-gnu")
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
MAJOR, CONTROL_MINOR = 195, 255
NOTHING = ("", "none", "void")


def named_minors(environment: list[str]) -> dict[str, int]:
    """Device nodes of the GPUs that the container shall have."""
    values = dict(each.partition("=")[::2] for each in environment)
    asked = values.get("NVIDIA_VISIBLE_DEVICES", "")
    if asked in NOTHING:
        return {}
    minors: dict[str, int] = json.loads((HARDWARE / "minors").read_text())
    chosen = minors if asked == "all" else {uuid: minors[uuid] for uuid in asked.split(",")}
    gpus = {f"/dev/nvidia{minor}": minor for minor in chosen.values()}
    return {**gpus, "/dev/nvidiactl": CONTROL_MINOR}


def inject(config: dict[str, Any]) -> None:
    process, linux = config["process"], config["linux"]
    minors = named_minors(process["env"])
    if not minors:
        return
    there = {device["path"] for device in linux.get("devices", ())}
    for path, minor in minors.items():
        node = {"type": "c", "major": MAJOR, "minor": minor}
        linux["resources"].setdefault("devices", []).append({**node, "allow": True, "access": "rw"})
        if path not in there:
            linux.setdefault("devices", []).append({**node, "path": path, "fileMode": 0o666})
    for library in LIBRARIES:
        bind(config, (DRIVER / library).resolve(), f"/usr/lib/x86_64-linux-gnu/{library}", "ro")
    # Real hardware needs no way to it besides its nodes.
    bind(config, HARDWARE, str(HARDWARE), "rw")
    process["env"].append(f"ALIQUOT_SIM_STATE={HARDWARE / 'node'}")


def bind(config: dict[str, Any], source: Path, target: str, mode: str) -> None:
    options = ["bind", "nosuid", "nodev", mode]
    mount = {"type": "bind", "source": str(source), "destination": target, "options": options}
    config["mounts"].append(mount)


def main() -> None:
    words = sys.argv[1:]
    if "create" in words:
        path = Path(words[words.index("--bundle") + 1], "config.json")
        config = json.loads(path.read_text())
        inject(config)
        path.write_text(json.dumps(config))
    os.execv(RUNC, [RUNC, *words])


if __name__ == "__main__":
    main()
