"""Process 1 of a simulated machine: makes its file systems its own, then only buries orphans."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

__all__: list[str] = []

# A kubelet tunes the kernel, and the kernel is the one of the machine that runs the tests: it gets
# copies of these files to write to.
TUNABLES = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def _own_file_systems(folder: Path) -> None:
    """What the machine writes stays in its folder, and nothing of the host's is changed."""
    _mount("-t", "tmpfs", "-o", "mode=755,size=512m", "tmpfs", "/run")
    # The folder may itself be below /var, and no overlay can lie on another one.
    own = Path("/run/machine")
    own.mkdir()
    _mount("--bind", folder, own)
    for name in ("etc", "dev", "var"):
        upper, work = own / "disk" / name, own / "overlay" / name
        upper.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
        _mount("-t", "overlay", "-o", options, "overlay", f"/{name}")
    _mount("--bind", own, folder)
    _mount("-t", "devpts", "-o", "newinstance,ptmxmode=666,mode=620", "devpts", "/dev/pts")
    # The kubelet measures the file system below its folder, and does not know overlays.
    kubelet = folder / "kubelet"
    for path in (kubelet, Path("/var/lib/kubelet")):
        path.mkdir(parents=True, exist_ok=True)
    _mount("--bind", kubelet, "/var/lib/kubelet")
    for name in TUNABLES:
        file, copy = Path("/proc/sys") / name, Path("/run/sysctl") / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        _mount("--bind", copy, file)
    # As systemd leaves it: mounts that a pod makes with Bidirectional propagation reach others.
    _mount("--make-rshared", "/")


def main() -> None:
    name, folder = sys.argv[1:]
    socket.sethostname(name)
    _own_file_systems(Path(folder))
    # As on every node. Left to the CNI plugins of the first pods, which write it at the same time,
    # it can read 1 while no interface forwards: the kernel's handler of this file has that race.
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
