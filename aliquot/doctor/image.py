"""What this image brings: its C library, whether the shim loads in it, and its own limits."""

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import shim
from aliquot.doctor.finding import Finding, fail, good, note, warn
from aliquot.sizes import format_size
from shim import limits
from shim.limits import Kind, LimitsError

__all__ = ["check_image", "judge_libc"]

OLDEST_GLIBC = (2, 31)
DEADLINE_S = 30.0


def check_image(root: Path = Path("/")) -> Iterator[Finding]:
    yield judge_libc(*platform.libc_ver())
    yield _check_preload(shim.PRELOAD_LIBRARY)
    yield from _check_limits(root / "etc" / "aliquot")


def judge_libc(name: str, version: str) -> Finding:
    if name != "glibc":
        return fail(
            "libc",
            f"this image's C library is {name or 'not glibc (musl?)'}",
            "the shim enforces nothing outside glibc; use an image based on Debian, Ubuntu or UBI",
        )
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_GLIBC:
        return warn(
            "libc",
            f"glibc {version} is older than what is tested",
            f"use an image with glibc {'.'.join(map(str, OLDEST_GLIBC))} or later",
        )
    return good("libc", f"glibc {version}")


def _check_preload(library: Path) -> Finding:
    if not library.exists():
        return fail("shim", f"{library} is missing", "build it with `make native`, or reinstall")
    env = {"PATH": os.environ.get("PATH", os.defpath), "LD_PRELOAD": str(library)}
    try:
        done = subprocess.run(["true"], env=env, capture_output=True, timeout=DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail("shim", f"nothing starts with it: {error}", "reinstall Aliquot")
    if done.returncode or done.stderr:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        return fail("shim", f"it does not load here: {said}", "is it built for this machine?")
    return good("shim", f"{library.name} loads in this image")


def _check_limits(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield note("limits", "this is not a container with a share of a GPU")
        return
    for kind in Kind:
        path = folder / kind.name.lower() / "limits"
        try:
            found = limits.read(path, kind)
        except (OSError, LimitsError) as error:
            yield fail(
                "limits",
                f"{kind.name.lower()}: {error}",
                "every CUDA call fails until it is there; delete the pod so that it is made anew, "
                "and see the node agent's log",
            )
            continue
        for device in found.devices:
            if kind is Kind.MEMORY:
                cap = (
                    "all memory" if device.limit_bytes is None else format_size(device.limit_bytes)
                )
                yield good("limits", f"{cap} of {device.uuid}")
            else:
                policy = found.policy.name.lower().replace("_", "-")
                yield good("limits", f"{device.share / 100:g}% of {device.uuid}, {policy}")
