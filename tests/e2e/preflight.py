"""Whether this machine can hold a test cluster; `python -m tests.e2e --preflight` only asks."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.binaries import GO_VERSION, MODULES
from tests.e2e.places import cache
from tests.e2e.sandbox import CGROUPS, make_group, remove_group

__all__ = ["PACKAGES", "check_machine", "problems"]

GIB = 1 << 30
MEMORY_BYTES = 4 * GIB
DISK_BYTES = 6 * GIB
DISK_TO_COMPILE_BYTES = 15 * GIB
"""Go's caches take 6 GiB of it, images and buildah's store 4, a running cluster 2."""

PACKAGES = {
    "buildah": "buildah",
    "ca-certificates": "/etc/ssl/certs/ca-certificates.crt",
    "conntrack": "conntrack",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "debootstrap": "debootstrap",
    "gcc": "cc",
    "git": "git",
    "gpgv": "gpgv",
    "iproute2": "ip",
    "iptables": "iptables",
    "libc6-dev": "/usr/include/stdio.h",
    "mount": "mount",
    "prometheus": "prometheus",
    "runc": "/usr/sbin/runc",
    "util-linux": "unshare",
}
"""Debian packages, each with a program or a file that it brings."""

# What a node does to its mounts and its network, on the file system that its disk will be on.
NODE = """
set -e
cd "$1"
mkdir lower upper work merged
mount -t tmpfs tmpfs lower
mount -t overlay -o lowerdir=/etc,upperdir=upper,workdir=work overlay merged
ip link add to-node type veth peer name eth0
ip link add cluster0 type bridge
iptables -t nat -L -n >/dev/null
"""


def check_machine() -> None:
    """Says everything that is missing at once, instead of failing after half an hour."""
    found = list(problems())
    for problem in found:
        print(f"e2e: {problem}", flush=True)
    if found:
        raise SystemExit(1)


def problems() -> Iterator[str]:
    """One line for each thing that is missing, with what to do about it."""
    if os.geteuid():
        yield "only root can start containers. Run `sudo make e2e`."
        return
    missing = [name for name, brings in PACKAGES.items() if not _is_there(brings)]
    if missing:
        yield f"Debian packages are missing. Run `apt-get install {' '.join(missing)}`."
    yield from _go_problems()
    cache().mkdir(parents=True, exist_ok=True)
    yield from _room_problems()
    yield from _group_problems()
    if not {"util-linux", "iproute2", "iptables"} & set(missing):
        yield from _node_problems()


def _is_there(brings: str) -> bool:
    return Path(brings).exists() if brings.startswith("/") else shutil.which(brings) is not None


def _go_problems() -> Iterator[str]:
    if all(module.is_built for module in MODULES):
        return
    wanted = f"Go {GO_VERSION} or later is needed to compile Kubernetes"
    if shutil.which("go") is None:
        yield f"{wanted}, and no go is on the PATH. Install it (https://go.dev/dl)."
        return
    ran = subprocess.run(["go", "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True)
    version, _, toolchain = ran.stdout.strip().partition("\n")
    # Since 1.21 Go fetches the version that a module asks for, unless told to stay as it is.
    fetches = _numbers(version) >= (1, 21) and toolchain != "local"
    if _numbers(version) < _numbers(GO_VERSION) and not fetches:
        yield f"{wanted}; {version or 'this one'} is older. Install it (https://go.dev/dl)."


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _room_problems() -> Iterator[str]:
    complete = all(module.is_built for module in MODULES)
    wanted = DISK_BYTES if complete else DISK_TO_COMPILE_BYTES
    free = shutil.disk_usage(cache()).free
    if free < wanted:
        yield (
            f"{cache()} has {free / GIB:.0f} GiB free, and {wanted // GIB} GiB are needed. "
            "Make room, or name another folder in ALIQUOT_E2E_CACHE."
        )
    facts = Path("/proc/meminfo").read_text()
    [available] = re.findall(r"^MemAvailable:\s+(\d+) kB", facts, re.MULTILINE)
    if int(available) * 1024 < MEMORY_BYTES:
        yield (
            f"{int(available) / (1 << 20):.1f} GiB of memory are available, and test clusters need "
            f"{MEMORY_BYTES // GIB} GiB. End other programs."
        )


def _group_problems() -> Iterator[str]:
    name = f"aliquot-e2e-preflight-{os.getpid()}"
    try:
        make_group(name)
    except OSError as error:
        yield f"no control group can be made below {CGROUPS}: {error}. Run where root may."
    else:
        remove_group(name)


def _node_problems() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        spaces = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc")
        ran = subprocess.run(
            ["unshare", *spaces, "--propagation=private", "sh", "-c", NODE, "sh", folder],
            capture_output=True,
            text=True,
        )
    if ran.returncode:
        said = " ".join(ran.stderr.split())
        yield (
            "namespaces with mounts, overlays and a network of their own do not work here: "
            f"{said}. Run in a virtual machine or a privileged container."
        )
