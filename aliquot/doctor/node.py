"""What a Kubernetes node needs: the kubelet's sockets, a way to GPUs, a place for our files."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from aliquot.doctor.finding import Finding, fail, good, note, warn

__all__ = ["check_node"]

_KUBELET = Path("var/lib/kubelet")
_SOCKETS = {
    "device plugins": _KUBELET / "device-plugins" / "kubelet.sock",
    "pod resources": _KUBELET / "pod-resources" / "kubelet.sock",
}
_CDI_FOLDERS = (Path("etc/cdi"), Path("var/run/cdi"))
_OURS = Path("var/lib/aliquot")
_LEAST_FREE_BYTES = 64 << 20
_RUNTIME = "nvidia-container-runtime"


def check_node(root: Path = Path("/")) -> Iterator[Finding]:
    if not (root / _KUBELET).is_dir():
        yield note("kubelet", "no kubelet here, so this is not a node of a cluster")
        return
    for name, place in _SOCKETS.items():
        yield _check_socket(name, root / place)
    yield _check_access(root)
    yield _check_room(root)


def _check_socket(name: str, path: Path) -> Finding:
    subject = f"kubelet, {name}"
    try:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(5)
            caller.connect(str(path))
    except FileNotFoundError:
        return fail(subject, f"{path} is missing", "start the kubelet; its log says why it is not")
    except PermissionError:
        return warn(subject, f"{path} may not be opened", "run `aliquot doctor` as root")
    except OSError as error:
        return fail(subject, f"{path}: {error.strerror or error}", "restart the kubelet")
    return good(subject, f"{path} answers")


def _check_access(root: Path) -> Finding:
    """The order in which the agent chooses, too."""
    for folder in _CDI_FOLDERS:
        if (root / folder).is_dir():
            return good("access to GPUs", f"by CDI, through {root / folder}")
    if shutil.which(_RUNTIME, path=f"{root / 'usr/bin'}:{root / 'usr/local/nvidia/toolkit'}"):
        return good("access to GPUs", f"by {_RUNTIME}")
    if any((root / "dev").glob("nvidia[0-9]*")):
        return good("access to GPUs", "by device nodes")
    return warn(
        "access to GPUs",
        "neither a CDI folder nor NVIDIA's runtime nor a device node is here",
        "install NVIDIA's driver; on a node without GPUs, deploy the overlay for simulated ones",
    )


def _check_room(root: Path) -> Finding:
    ours = root / _OURS
    place = ours if ours.is_dir() else ours.parent
    if not os.access(place, os.W_OK):
        return warn("files", f"{place} is not ours to write", "run `aliquot doctor` as root")
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < _LEAST_FREE_BYTES:
        return fail(
            "files",
            f"{place} has {free_bytes >> 20} MiB left",
            "free some: without a journal on disk no container gets a GPU",
        )
    return good("files", f"{place} can be written, {free_bytes >> 20} MiB are free")
