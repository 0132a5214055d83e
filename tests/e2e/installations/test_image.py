"""The image as it was built: what containers load from it, and what is not in it."""

import json
import re
import tarfile
from pathlib import Path, PurePath

import pytest

from tests.e2e.archives import read_file
from tests.e2e.cluster import Cluster
from tests.e2e.images import PRODUCT_IMAGE

# Programs that build or install others; the base image may bring its own pip.
TOOLS = {"as", "cc", "clang", "g++", "gcc", "ld", "make", "zig"}
OURS = "opt/aliquot/"
LOADED = ("shim/libaliquot.so", "simgpu/lib/libcuda.so.1", "simgpu/lib/libnvidia-ml.so.1")


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Path:
    return cluster.images()[PRODUCT_IMAGE]


@pytest.fixture(scope="module")
def files(image: Path) -> set[str]:
    found = set()
    with tarfile.open(image) as archive:
        [described] = json.loads(_content(archive, "manifest.json"))
        for name in described["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                found |= {each.name.removeprefix("./") for each in layer if not each.isdir()}
    return found


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    assert content is not None
    return content.read()


def test_it_has_no_compiler_and_its_own_environment_no_installer(files: set[str]) -> None:
    assert f"{OURS}bin/aliquot" in files
    assert not TOOLS & {PurePath(path).name for path in files}
    ours = [path for path in files if path.startswith(OURS)]
    assert not [path for path in ours if re.search(r"/(pip|ziglang|setuptools|pytest)[-/]", path)]


def test_everything_in_it_is_byte_compiled(files: set[str]) -> None:
    """It runs from a file system that it cannot write to, and would compile at each start."""
    sources = [PurePath(path) for path in files if path.startswith(OURS) and path.endswith(".py")]
    assert len(sources) > 100
    compiled = {PurePath(path) for path in files if path.endswith(".pyc")}
    versions = {path.suffixes[0] for path in compiled if path.parts[:2] == ("opt", "aliquot")}
    [version] = versions
    missing = [
        str(source)
        for source in sources
        if source.parent / "__pycache__" / f"{source.stem}{version}.pyc" not in compiled
    ]
    assert missing == []


def test_it_is_not_root_by_itself(image: Path) -> None:
    with tarfile.open(image) as archive:
        [described] = json.loads(_content(archive, "manifest.json"))
        config = json.loads(_content(archive, described["Config"]))["config"]
    assert config["User"] == "65534"
    assert config["Entrypoint"] == ["aliquot"]


@pytest.mark.parametrize("library", LOADED)
def test_what_containers_load_needs_no_newer_glibc(image: Path, library: str) -> None:
    _, content = read_file(image, f"site-packages/{library}")
    needed = {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", content)}
    assert needed
    assert max(needed) <= 17
