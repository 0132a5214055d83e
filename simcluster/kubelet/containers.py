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

__all__ = ["NoContainers", "check_containers", "start_process"]

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
            f"containers need mount namespaces (root, or CAP_SYS_ADMIN): {probe.stderr.strip()}"
        )


def start_process(
    options: RunOptions,
    command: Sequence[str],
    env: Mapping[str, str],
    **popen: Any,
) -> subprocess.Popen[Any]:
    """Runs the command with the mounts and the environment of a container.

    As in a runtime, what the pod itself sets comes after what plugins set.
    """
    check_containers()
    if options.cdi:
        raise NoContainers("CDI devices need a container runtime; choose another GPU access")
    mounts = [(each.host, each.container, each.read_only) for each in options.mounts]
    mounts += [(host, container, False) for container, host, _ in options.devices]
    return subprocess.Popen(_words(mounts, command, {**options.env, **env}), **popen)


def _words(
    mounts: Sequence[tuple[str, str, bool]], command: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    wish = {"mounts": mounts, "command": list(command), "env": dict(env)}
    return [sys.executable, "-I", "-S", _ENTER, json.dumps(wish)]
