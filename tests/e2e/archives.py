"""Images without a registry: docker-archives written by hand, which containerd imports."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["file_layer", "read_file", "with_layer", "write_archive"]


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


def read_file(archive: Path, ending: str) -> tuple[str, bytes]:
    """Path and content of the one file of an image whose path ends so."""
    with tarfile.open(archive) as tar:
        [image] = json.load(_content(tar, "manifest.json"))
        for name in reversed(image["Layers"]):
            with tarfile.open(fileobj=_content(tar, name)) as layer:
                for member in layer:
                    if member.isfile() and member.name.endswith(ending):
                        return member.name, _content(layer, member.name).read()
    raise FileNotFoundError(f"{ending} in {archive}")


def with_layer(archive: Path, made: Path, tag: str, layer: Path) -> None:
    """The same image under another name, with a layer more."""
    digest = _digest(layer)
    with tarfile.open(archive) as tar, tarfile.open(made, "w") as out:
        [image] = json.load(_content(tar, "manifest.json"))
        config = json.load(_content(tar, image["Config"]))
        for name in dict.fromkeys(image["Layers"]):
            out.addfile(tar.getmember(name), _content(tar, name))
        out.add(layer, f"{digest}.tar")
        config["rootfs"]["diff_ids"].append(f"sha256:{digest}")
        config["history"].append({"created_by": "tests/e2e"})
        text = json.dumps(config).encode()
        image |= {
            "Config": hashlib.sha256(text).hexdigest() + ".json",
            "RepoTags": [tag],
            "Layers": [*image["Layers"], f"{digest}.tar"],
        }
        _add(out, image["Config"], text)
        _add(out, "manifest.json", json.dumps([image]).encode())


def _content(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    content = tar.extractfile(name)
    assert content is not None, f"{name} is no file"
    return content


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
