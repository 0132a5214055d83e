"""Containers as processes: started with exactly what the kubelet would give a runtime."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcluster.kubelet.runoptions import RunOptions

__all__ = ["NoContainers", "check_containers", "start_process", "start_without_mounts"]

_ENTER = str(Path(__file__).with_name("enter.py"))


class NoContainers(RuntimeError):  # noqa: N818 - a state, not a fault
    """This machine does not let us mount; the text says what is missing."""


@functools.cache
def check_containers() -> None:
    """Raises where processes cannot have mounts of their own."""
    probe = subprocess.run(
        _words([], ["true"], {"PATH": os.defpath}), capture_output=True, text=True, timeout=60
    )
    if probe.returncode:
        raise NoContainers(
            "containers need mount namespaces (root with CAP_SYS_ADMIN, or user namespaces): "
            f"{probe.stderr.strip()}"
        )


def start_process(
    options: RunOptions,
    command: Sequence[str],
    env: Mapping[str, str],
    scratch: Path | None = None,
    **popen: Any,
) -> subprocess.Popen[Any]:
    """Runs the command with the mounts and the environment of a container.

    As in a runtime, what the pod itself sets comes after what plugins set. `scratch` is where empty
    folders are made for a moment; one that is killed in it leaves them behind.
    """
    check_containers()
    if options.cdi:
        raise NoContainers("CDI devices need a container runtime; choose another GPU access")
    mounts = [(each.host, each.container, each.read_only) for each in options.mounts]
    mounts += [(host, container, False) for container, host, _ in options.devices]
    return subprocess.Popen(_words(mounts, command, {**options.env, **env}, scratch), **popen)


def start_without_mounts(
    options: RunOptions,
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    **popen: Any,
) -> subprocess.Popen[Any]:
    """The nearest thing where nobody may mount: the same files, from where the host has them.

    The shim finds them in `folder`, as it does for local runs. Nothing is read-only this way.
    """
    places = {each.container: each.host for each in options.mounts}
    for half in ("memory", "compute"):
        (folder / half).mkdir(parents=True)
        # Links would not be followed.
        (folder / half / "limits").hardlink_to(places[f"/etc/aliquot/{half}/limits"])
        (folder / half / "usage").hardlink_to(Path(places[f"/run/aliquot/{half}"], "usage"))
    preload = Path(places["/etc/ld.so.preload"]).read_text().strip()
    given = {name: _on_host(text, places) for name, text in options.env.items()}
    given |= {"LD_PRELOAD": _on_host(preload, places), "ALIQUOT_RUN": str(folder)}
    return subprocess.Popen(list(command), env={**given, **env}, **popen)


def _on_host(path: str, places: Mapping[str, str]) -> str:
    for container, host in places.items():
        if path == container or path.startswith(f"{container}/"):
            return host + path.removeprefix(container)
    return path


def _words(
    mounts: Sequence[tuple[str, str, bool]],
    command: Sequence[str],
    env: Mapping[str, str],
    scratch: Path | None = None,
) -> list[str]:
    wish = {
        "mounts": mounts,
        "command": list(command),
        "env": dict(env),
        "scratch": str(scratch) if scratch else None,
    }
    return [sys.executable, "-I", "-S", _ENTER, json.dumps(wish)]
