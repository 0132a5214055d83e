"""Images without a registry: docker-archives written by hand, which containerd imports."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["file_layer", "write_archive"]


def file_layer(path: Path, files: Mapping[str, Path]) -> Path:
    """A layer with these files, all executable and owned by root; `files` is by path inside."""
    with tarfile.open(path, "w") as tar:
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size = source.stat().st_size
            entry.mode = 0o755
            with source.open("rb") as content:
                tar.addfile(entry, content)
    return path


def write_archive(
    path: Path,
    tag: str,
    layers: Sequence[Path],
    entrypoint: Sequence[str],
    environment: Sequence[str] = ("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",),
) -> None:
    """`layers` are uncompressed tar files, lowest first."""
    digests = [_digest(layer) for layer in layers]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": list(environment)},
            "history": [{"created_by": "tests/e2e"} for _ in layers],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [
        {
            "Config": config_name,
            "RepoTags": [tag],
            "Layers": [f"{digest}/layer.tar" for digest in digests],
        }
    ]
    part = path.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        _add(tar, config_name, config)
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, f"{digest}/layer.tar")
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    part.rename(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
