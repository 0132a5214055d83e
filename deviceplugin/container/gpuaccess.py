"""How a container reaches the GPUs themselves: CDI, the NVIDIA runtime, device nodes, simulator."""

import json
import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deviceplugin.container.cdi import device_name, specification
from deviceplugin.container.driverfiles import (
    LIBRARY_FOLDER,
    UVM,
    control_nodes,
    library_mounts,
    why_without_cuda,
)
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

CDI_FOLDERS = ("etc/cdi", "var/run/cdi")
RUNTIME_PROGRAMS = (
    "usr/bin/nvidia-container-runtime",
    "usr/local/nvidia/toolkit/nvidia-container-runtime",
)


_NONE = Hardware()
_NOT_BY_RUNTIME = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""CUDA's images ask for all GPUs by themselves; NVIDIA's runtime, where it is the default, would
give them all."""
_ENVIRONMENT = {
    **_NOT_BY_RUNTIME,
    # Triton asks the loader's cache, which no hook of ours brings up to date.
    "TRITON_LIBCUDA_PATH": str(LIBRARY_FOLDER),
}

_SIM_LIBRARIES, _SIM_STATE = Path("/usr/local/lib/aliquot/driver"), Path("/run/aliquot/driver")
"""Where containers of a simulated node find their driver and its state."""

_log = logging.getLogger(__name__)


class GpuAccess(Protocol):
    @property
    def problem(self) -> str:
        """Why containers that start now could not use their GPU, and what to do; empty when they
        could."""

    def prepare(self, hardware: Hardware) -> None:
        """Puts on the host what grants refer to; called whenever the GPUs have changed. What fails
        is a `problem`, and tried again by `refresh`."""

    def refresh(self) -> None:
        """Looks again for the host's own files, which come and go with parts of the driver."""

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        """The same for both resources, to the byte."""

    def remove(self) -> None:
        """Takes away what was put on the host."""


@dataclass(slots=True)
class NodeAccess:
    """Device nodes and the driver's libraries, named one by one."""

    host: Path = Path("/")
    """Where the agent sees the host's files."""
    problem: str = ""
    _hardware: Hardware = _NONE
    _nodes: tuple[DeviceNode, ...] = ()
    _mounts: tuple[Mount, ...] = ()

    def prepare(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.refresh()

    def refresh(self) -> None:
        before, self._nodes = self._nodes, control_nodes(self.host)
        self._mounts = library_mounts(self.host, self._hardware.driver)
        problem = ""
        if self._hardware.gpus:
            problem = why_without_cuda(self._mounts, self.host, self._hardware.driver)
        _log_change(self.problem, problem)
        self.problem = problem
        if before != self._nodes:
            _warn_without_uvm(self._nodes)

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        nodes = tuple(map(_node, gpus))
        return Grant(env=_ENVIRONMENT, mounts=self._mounts, devices=(*nodes, *self._nodes))

    def remove(self) -> None:
        pass


class RuntimeAccess:
    """The variable that NVIDIA's container runtime reads. A pod can override it; then the shim
    hides every GPU that is not in its limits."""

    problem = ""

    def prepare(self, hardware: Hardware) -> None:
        pass

    def refresh(self) -> None:
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
    problem: str = ""
    _hardware: Hardware = _NONE
    _written: str = ""
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> Path:
        return self.folder / "aliquot.dev-gpu.json"

    def prepare(self, hardware: Hardware) -> None:
        with self._writing:
            self._hardware = hardware
            self._try_to_write()

    def refresh(self) -> None:
        with self._writing:
            self._try_to_write()

    def _try_to_write(self) -> None:
        before = self.problem
        try:
            self.problem = self._write()
        except OSError as error:
            self.problem = (
                f"{self.path}, by which containers find their GPU, cannot be written: "
                f"{error.strerror or error}; it needs a folder with room that the agent may write "
                "to, and is tried again every few seconds"
            )
        _log_change(before, self.problem)

    def _write(self) -> str:
        """Why containers could not use what the file has."""
        if not self._hardware.gpus:
            return ""  # what there is from before, containers may still want to start with
        nodes = control_nodes(self.host)
        mounts = library_mounts(self.host, self._hardware.driver)
        # The variable in the file, too: it is applied last, so no pod can set another one.
        made = specification(
            {gpu.uuid: _node(gpu) for gpu in self._hardware.gpus}, nodes, mounts, _NOT_BY_RUNTIME
        )
        text = json.dumps(made, indent=1, sort_keys=True)
        problem = why_without_cuda(mounts, self.host, self._hardware.driver)
        if text == self._written and self.path.exists():
            return problem
        _warn_without_uvm(nodes)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Runtimes read every file of the folder that ends in .json, at any time.
        fresh = self.path.with_name(f".{self.path.name}.new")
        with open(fresh, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._written = text
        return problem

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        return Grant(env=_ENVIRONMENT, cdi=tuple(device_name(gpu.uuid) for gpu in gpus))

    def remove(self) -> None:
        with self._writing:
            self.path.unlink(missing_ok=True)
            self._written = ""


@dataclass(frozen=True, slots=True)
class SimulatedAccess:
    """Another driver instead of NVIDIA's: a folder with its libraries, and its node's state."""

    libraries: Path
    """A folder with libcuda.so.1 and libnvidia-ml.so.1."""
    state: Path
    """The file that all processes of the node share; nothing else may be in its folder."""

    @property
    def problem(self) -> str:
        return ""

    def prepare(self, hardware: Hardware) -> None:
        pass

    def refresh(self) -> None:
        pass

    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:  # noqa: ARG002 - the shim hides the others
        return Grant(
            env={
                "LD_LIBRARY_PATH": str(_SIM_LIBRARIES),
                "ALIQUOT_SIM_STATE": str(_SIM_STATE / self.state.name),
            },
            mounts=(
                Mount(self.libraries, _SIM_LIBRARIES),
                Mount(self.state.parent, _SIM_STATE, read_only=False),
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


def _log_change(before: str, problem: str) -> None:
    if problem and problem != before:
        _log.error("%s", problem)
    elif before and not problem:
        _log.info("containers can use their GPUs again")


def _warn_without_uvm(nodes: tuple[DeviceNode, ...]) -> None:
    if nodes and not any(each.host.name == UVM for each in nodes):
        _log.warning(
            "/dev/%s is not on this node, so no CUDA program of a container can start; load it "
            "there with `nvidia-modprobe -u -c=0`, at every boot",
            UVM,
        )
