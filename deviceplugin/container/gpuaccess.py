"""How a container reaches the GPUs themselves: CDI, the NVIDIA runtime, device nodes, simulator."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deviceplugin.container.driverfiles import control_nodes, library_mounts
from deviceplugin.container.grant import DeviceNode, Grant, Mount
from deviceplugin.gpus.hardware import Gpu, Hardware

__all__ = [
    "CdiAccess",
    "GpuAccess",
    "NodeAccess",
    "RuntimeAccess",
    "SimulatedAccess",
    "choose_access",
]

CDI_KIND = "aliquot.dev/gpu"
CDI_VERSION = "0.5.0"
"""Old enough for every runtime that knows CDI at all."""
CDI_FOLDERS = ("etc/cdi", "var/run/cdi")
RUNTIME_PROGRAMS = (
    "usr/bin/nvidia-container-runtime",
    "usr/local/nvidia/toolkit/nvidia-container-runtime",
)


class GpuAccess(Protocol):
    def prepare(self, hardware: Hardware) -> None:
        """Puts on the host what grants refer to; called whenever the GPUs have changed."""

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        """The same for both resources, to the byte."""

    def remove(self) -> None:
        """Takes away what was put on the host."""


@dataclass(slots=True)
class NodeAccess:
    """Device nodes and the driver's libraries, named one by one."""

    host: Path = Path("/")
    """Where the agent sees the host's files."""
    _nodes: tuple[DeviceNode, ...] = ()
    _mounts: tuple[Mount, ...] = ()

    def prepare(self, hardware: Hardware) -> None:
        self._nodes = control_nodes(self.host)
        self._mounts = library_mounts(self.host, hardware.driver)

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        nodes = tuple(map(_node, gpus))
        return Grant(mounts=self._mounts, devices=(*nodes, *self._nodes))

    def remove(self) -> None:
        pass


class RuntimeAccess:
    """The variable that NVIDIA's container runtime reads. A pod can override it; then the shim
    hides every GPU that is not in its limits."""

    def prepare(self, hardware: Hardware) -> None:
        pass

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        return Grant(
            env={
                "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus),
                "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            }
        )

    def remove(self) -> None:
        pass


@dataclass(slots=True)
class CdiAccess:
    """Names in a Container Device Interface file, which we write and keep."""

    folder: Path = Path("/var/run/cdi")
    host: Path = Path("/")
    _written: str = ""

    @property
    def path(self) -> Path:
        return self.folder / "aliquot.dev-gpu.json"

    def prepare(self, hardware: Hardware) -> None:
        text = json.dumps(_cdi_specification(hardware, self.host), indent=1, sort_keys=True)
        if text == self._written and self.path.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # Runtimes read every file of the folder that ends in .json, at any time.
        fresh = self.path.with_name(f".{self.path.name}.new")
        with open(fresh, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._written = text

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        return Grant(cdi=tuple(f"{CDI_KIND}={gpu.uuid}" for gpu in gpus))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._written = ""


@dataclass(frozen=True, slots=True)
class SimulatedAccess:
    """Another driver instead of NVIDIA's: a folder with its libraries, and its node's state."""

    libraries: Path
    """A folder with libcuda.so.1 and libnvidia-ml.so.1."""
    state: Path
    """The file that all processes of the node share; nothing else may be in its folder."""

    def prepare(self, hardware: Hardware) -> None:
        pass

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:  # noqa: ARG002 - the shim hides the others
        libraries, state = Path("/usr/local/lib/aliquot/driver"), Path("/run/aliquot/driver")
        return Grant(
            env={
                "LD_LIBRARY_PATH": str(libraries),
                "ALIQUOT_SIM_STATE": str(state / self.state.name),
            },
            mounts=(
                Mount(self.libraries, libraries),
                Mount(self.state.parent, state, read_only=False),
            ),
        )

    def remove(self) -> None:
        pass


def choose_access(how: str, host: Path = Path("/"), cdi_folder: Path | None = None) -> GpuAccess:
    """`auto` is CDI where the host has a folder for it, else NVIDIA's runtime where that is
    installed, else device nodes."""
    if how == "auto":
        if any((host / folder).is_dir() for folder in CDI_FOLDERS):
            how = "cdi"
        elif any((host / program).exists() for program in RUNTIME_PROGRAMS):
            how = "runtime"
        else:
            how = "nodes"
    if how == "cdi":
        return CdiAccess(cdi_folder or host / "var/run/cdi", host)
    if how == "runtime":
        return RuntimeAccess()
    if how == "nodes":
        return NodeAccess(host)
    raise ValueError(f"{how!r} is no way to reach a GPU; there are auto, cdi, runtime and nodes")


def _node(gpu: Gpu) -> DeviceNode:
    path = Path(f"/dev/nvidia{gpu.minor}")
    return DeviceNode(path, path)


def _cdi_specification(hardware: Hardware, host: Path) -> dict[str, Any]:
    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [
            {"name": gpu.uuid, "containerEdits": {"deviceNodes": [_cdi_node(_node(gpu))]}}
            for gpu in hardware.gpus
        ],
        "containerEdits": {
            "deviceNodes": [_cdi_node(node) for node in control_nodes(host)],
            "mounts": [
                {
                    "hostPath": str(mount.host),
                    "containerPath": str(mount.container),
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }
                for mount in library_mounts(host, hardware.driver)
            ],
        },
    }


def _cdi_node(node: DeviceNode) -> dict[str, str]:
    return {
        "path": str(node.container),
        "hostPath": str(node.host),
        "permissions": node.permissions,
    }
