"""Every image that a test cluster runs, made before the cluster is cut off from the network."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aliquot import __version__
from tests.e2e.archives import file_layer, write_archive
from tests.e2e.binaries import KUBERNETES_VERSION, binaries
from tests.e2e.node import PAUSE_IMAGE
from tests.e2e.places import CHECKOUT, cache

__all__ = ["CLIENT_IMAGE", "PRODUCT_IMAGE", "archives"]

PRODUCT_IMAGE = f"docker.io/aliquot/aliquot:{__version__}"
"""The name that deploy/ asks for."""
CLIENT_IMAGE = "localhost/aliquot-e2e-client:1"
SCHEDULER_IMAGE = f"registry.k8s.io/kube-scheduler:v{KUBERNETES_VERSION}"
BASE_IMAGE = "localhost/aliquot-e2e-base:2"
BUILD_IMAGE = "localhost/aliquot-e2e-build:2"

DEBIAN = "bookworm"
RUN_PACKAGES = "ca-certificates,python3"
BUILD_PACKAGES = ("python3-venv", "libpython3-dev")

PAUSE = """\
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0) {} }
int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"""


def archives() -> dict[str, Path]:
    """Makes what is missing; the archives by the names of their images."""
    folder = cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return {
        PAUSE_IMAGE: _pause(folder),
        SCHEDULER_IMAGE: _scheduler(folder),
        CLIENT_IMAGE: _client(folder),
        PRODUCT_IMAGE: _product(folder),
    }


def _pause(folder: Path) -> Path:
    made = folder / "pause.tar"
    if not made.exists():
        with tempfile.TemporaryDirectory() as scratch:
            source, program = Path(scratch, "pause.c"), Path(scratch, "pause")
            source.write_text(PAUSE)
            subprocess.run(["cc", "-Os", "-static", "-s", "-o", program, source], check=True)
            layer = file_layer(Path(scratch, "layer.tar"), {"pause": program})
            write_archive(made, PAUSE_IMAGE, [layer], ["/pause"])
    return made


def _scheduler(folder: Path) -> Path:
    made = folder / f"kube-scheduler-{KUBERNETES_VERSION}.tar"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            files = {"usr/local/bin/kube-scheduler": binaries()["kube-scheduler"]}
            layer = file_layer(Path(scratch, "layer.tar"), files)
            write_archive(made, SCHEDULER_IMAGE, [layer], ["kube-scheduler"])
    return made


def _client(folder: Path) -> Path:
    program = Path(__file__).parent / "client.py"
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    made = folder / f"client-{digest}.tar"
    if not made.exists():
        base = _base(folder)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            layer = file_layer(Path(scratch, "layer.tar"), {"usr/local/bin/client": program})
            write_archive(made, CLIENT_IMAGE, [base, layer], ["client"])
    return made


def _base(folder: Path) -> Path:
    """A small Debian with Python, from Debian's packages: its file system as one tar file."""
    made = folder / f"debian-{DEBIAN}.tar"
    if not (made.exists() and _build_base(folder).exists()):
        _say(f"making a Debian {DEBIAN} with Python (a few minutes)")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            root = Path(scratch, "root")
            bootstrap = ["debootstrap", "--variant=minbase", f"--include={RUN_PACKAGES}", DEBIAN]
            _quietly(*bootstrap, str(root))
            _pack(root, made)
            for name in ("resolv.conf", "ssl/certs/ca-certificates.crt"):
                shutil.copy(Path("/etc", name), root / "etc" / name)
            apt = ("apt-get", "-qy", "-o=APT::Sandbox::User=root")
            _quietly("chroot", str(root), *apt, "update")
            _quietly(
                "chroot", str(root), *apt, "install", "--no-install-recommends", *BUILD_PACKAGES
            )
            _pack(root, _build_base(folder))
    return made


def _build_base(folder: Path) -> Path:
    return folder / f"debian-{DEBIAN}-build.tar"


def _pack(root: Path, made: Path) -> None:
    part = made.with_suffix(".part")
    bulk = (
        "dev/*",
        "var/cache/apt/*",
        "var/lib/apt/lists/*",
        "usr/share/doc/*",
        "usr/share/locale/*",
    )
    left_out = [f"--exclude=./{pattern}" for pattern in bulk]
    subprocess.run(["tar", "-C", root, *left_out, "-cf", part, "."], check=True)
    part.rename(made)


def _product(folder: Path) -> Path:
    """The project's own Dockerfile, built on that Debian."""
    made = folder / f"aliquot-{_inputs_digest()}.tar"
    if made.exists():
        return made
    _say("building the image of this checkout (a few minutes)")
    bases = {BASE_IMAGE: _base(folder), BUILD_IMAGE: _build_base(folder)}
    for tag, layer in bases.items():
        archive = layer.with_suffix(".archive")
        if not archive.exists():
            write_archive(archive, tag, [layer], ["python3"])
            _buildah("pull", "--quiet", f"docker-archive:{archive}")
    _buildah(
        *("build", "--isolation=chroot", "--layers", "--pull-never"),
        *(f"--build-arg=BUILD_IMAGE={BUILD_IMAGE}", f"--build-arg=RUN_IMAGE={BASE_IMAGE}"),
        # The build downloads packages as this machine does, which may trust a proxy of its own.
        "--volume=/etc/ssl/certs:/etc/ssl/certs:ro",
        *(f"--tag={PRODUCT_IMAGE}", str(CHECKOUT)),
    )
    part = made.with_suffix(".part")
    part.unlink(missing_ok=True)
    _buildah("push", "--quiet", PRODUCT_IMAGE, f"docker-archive:{part}:{PRODUCT_IMAGE}")
    for older in folder.glob("aliquot-*.tar"):
        older.unlink()
    part.rename(made)
    return made


def _quietly(*words: str) -> None:
    """Shows what a command said only if it fails."""
    # What a command mounts and does not unmount, because it was killed, is gone with it.
    alone = ("unshare", "--mount", "--propagation=private", "--")
    ran = subprocess.run(
        ["nice", "-n", "10", *alone, *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"e2e: {' '.join(words)}:\n{ran.stdout[-3000:]}")


def _buildah(*words: str) -> None:
    storage = cache() / "buildah"
    where = (f"--root={storage}/store", f"--runroot={storage}/run", "--storage-driver=overlay")
    subprocess.run(["nice", "-n", "10", "buildah", *where, *words], check=True, stdout=sys.stderr)


def _inputs_digest() -> str:
    digest = hashlib.sha256(platform.machine().encode())
    for path in _inputs():
        digest.update(f"{path}\0".encode())
        digest.update((CHECKOUT / path).read_bytes())
    return digest.hexdigest()[:12]


def _copied() -> Iterator[str]:
    """What makes the image: another test or another manifest needs no other one."""
    yield from ("Dockerfile", ".dockerignore")
    for line in (CHECKOUT / "Dockerfile").read_text().splitlines():
        match line.split():
            case ["COPY", *sources, _] if not sources[0].startswith("--from"):
                yield from sources


def _inputs() -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *_copied()],
        cwd=CHECKOUT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for path in sorted(set(listed.stdout.split("\0"))):
        if path and (CHECKOUT / path).is_file():
            yield path


def _say(text: str) -> None:
    print(f"e2e: {text}", file=sys.stderr, flush=True)
