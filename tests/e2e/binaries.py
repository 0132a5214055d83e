"""Kubernetes, etcd, containerd and Helm, compiled from their Go modules once per version."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.places import cache

__all__ = ["GO_VERSION", "KUBERNETES_VERSION", "MODULES", "Module", "binaries", "build_all"]

KUBERNETES_VERSION = "1.36.3"
GO_VERSION = "1.26.0"

PROGRESS_S = 15.0


@dataclass(frozen=True, slots=True)
class Module:
    """Programs that come out of one Go module."""

    name: str
    path: str
    version: str
    programs: tuple[tuple[str, str], ...]
    """Name of the program, and its package below the module."""
    stamps: tuple[str, ...] = ()
    """`package.variable=value`, what the programs shall answer when asked for their version."""
    staging: str = ""
    """Version of the modules that this one replaces by folders of its own repository."""

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    @property
    def is_built(self) -> bool:
        return all((self.folder / program).exists() for program, _ in self.programs)


def _kubernetes_stamps() -> tuple[str, ...]:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    values = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(
        f"{package}.{key}={value}" for package in packages for key, value in values.items()
    )


MODULES = (
    Module(
        "containerd",
        "github.com/containerd/containerd/v2",
        "v2.2.9",
        tuple((name, f"cmd/{name}") for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
        ("github.com/containerd/containerd/v2/version.Version=v2.2.9",),
    ),
    Module("etcd", "go.etcd.io/etcd/server/v3", "v3.6.16", (("etcd", "."),)),
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        f"v{KUBERNETES_VERSION}",
        tuple(
            (name, f"cmd/{name}")
            for name in (
                "kubectl",
                "kubelet",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
            )
        ),
        _kubernetes_stamps(),
        staging="v0" + KUBERNETES_VERSION.removeprefix("1"),
    ),
    Module("helm", "helm.sh/helm/v3", "v3.22.0", (("helm", "cmd/helm"),)),
)


def binaries() -> dict[str, Path]:
    """Every program by its name; they may still have to be built."""
    return {name: module.folder / name for module in MODULES for name, _ in module.programs}


def build_all() -> None:
    """Compiles what the cache lacks; says how far it is, because a first time takes long."""
    for module in MODULES:
        if not module.is_built:
            _build(module)


def _build(module: Module) -> None:
    module.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        folder = Path(scratch)
        (folder / "go.mod").write_text(_go_mod(module))
        for program, package in module.programs:
            if not (module.folder / program).exists():
                _compile(module, program, package, folder)


def _go_mod(module: Module) -> str:
    # Without its line, Go would take us for an old module and resolve everything there ever was.
    language = f"go {GO_VERSION}"
    lines = ["module aliquot.dev/e2e", language, f"require {module.path} {module.version}"]
    if module.staging:
        lines += [f"replace {name} => {name} {module.staging}" for name in _staged(module)]
    return "\n\n".join(lines) + "\n"


def _staged(module: Module) -> Iterator[str]:
    """Replacements hold only in a main module, and ours is another: it has to repeat them."""
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{module.path}@{module.version}"],
        check=True,
        stdout=subprocess.PIPE,
    )
    text = Path(json.loads(answer.stdout)["GoMod"]).read_text()
    for found in re.finditer(r"^\s*(\S+) => \./staging/", text, re.MULTILINE):
        yield found[1]


def _compile(module: Module, program: str, package: str, folder: Path) -> None:
    flags = " ".join(["-s -w", *(f"-X {stamp}" for stamp in module.stamps)])
    target = module.path if package == "." else f"{module.path}/{package}"
    made = folder / program
    started = time.monotonic()
    _say(f"compiling {program} {module.version}")
    compiler = subprocess.Popen(
        ["nice", "-n", "10", "go", "build", "-v", "-ldflags", flags, "-o", made, target],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert compiler.stderr is not None
    said, last_lines = started, [""]
    for packages, line in enumerate(compiler.stderr, start=1):
        last_lines = [*last_lines[-20:], line]
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            _say(f"  {program}: {packages} packages after {said - started:.0f} s")
    if compiler.wait():
        raise SystemExit(f"e2e: {program} could not be compiled:\n{''.join(last_lines)}")
    made.rename(module.folder / program)
    _say(f"  {program}: done in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    print(f"e2e: {text}", file=sys.stderr, flush=True)
