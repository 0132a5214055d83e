"""Images as containerd keeps them, unpacked once: six nodes that unpack half a gigabyte each would
take half a minute of every run. `python -m tests.e2e.imagestore FOLDER ARCHIVE ...` fills a store.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.binaries import binaries
from tests.e2e.daemons import Daemon
from tests.e2e.places import CHECKOUT, cache
from tests.e2e.sandbox import ENDS_WITH_US

__all__ = ["give", "made_of"]

# What containerd writes to after a start; everything else of images it only reads or removes.
WRITTEN = "*.db"
# By this name it would know itself among others.
OWN = "io.containerd.grpc.v1.introspection"


def made_of(archives: Iterable[Path]) -> Path:
    """A store with these images; the one that is there, if it has them."""
    named = [binaries()["containerd"].parent.name, *(_identity(each) for each in archives)]
    digest = hashlib.sha256("\0".join(named).encode()).hexdigest()[:12]
    made = cache() / "images" / f"store-{digest}"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=cache() / "images") as scratch:
        spaces = ("--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")
        fill = (sys.executable, "-m", "tests.e2e.imagestore", scratch, *map(str, archives))
        command = [*ENDS_WITH_US, "unshare", *spaces, "--propagation=private", "--", *fill]
        subprocess.run(command, check=True, cwd=CHECKOUT)
        for older in made.parent.glob("store-*"):
            shutil.rmtree(older)
        Path(scratch, "root").rename(made)
    return made


def _identity(archive: Path) -> str:
    facts = archive.stat()
    return f"{archive.name} {facts.st_size} {facts.st_mtime_ns}"


def give(store: Path, root: Path) -> None:
    """To a containerd that has not started yet. Files are the store's own, which saves their room,
    too: layers lie below those of containers, and nobody writes to them."""
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--link", f"{store}/.", root], check=True)
    for path in root.rglob(WRITTEN):
        path.unlink()
        shutil.copy2(store / path.relative_to(root), path)


def _fill(folder: Path, archives: Iterable[str]) -> None:
    socket, programs = folder / "socket", binaries()
    settings = folder / "containerd.toml"
    settings.write_text(f"""\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
address = "{socket}"
""")
    containerd = Daemon("containerd", [programs["containerd"], "--config", settings], folder)
    ctr = [programs["ctr"], f"--address={socket}", "--namespace=k8s.io"]
    containerd.start()
    try:
        containerd.await_answer(
            lambda: not subprocess.run([*ctr, "version"], capture_output=True).returncode
        )
        for archive in archives:
            imported = subprocess.run([*ctr, "images", "import", archive], capture_output=True)
            if imported.returncode:
                raise SystemExit(f"e2e: {archive}:\n{imported.stderr.decode()}")
    finally:
        containerd.stop()
    shutil.rmtree(folder / "root" / OWN, ignore_errors=True)


if __name__ == "__main__":
    _fill(Path(sys.argv[1]), sys.argv[2:])
