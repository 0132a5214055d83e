"""Accounts on file systems of their own, which the kernel really mounts."""

import os
from pathlib import Path

import pytest

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking.ledger import Allocation
from deviceplugin.container.files import ContainerFiles
from deviceplugin.container.gpuaccess import RuntimeAccess

UUID = "GPU-00000000-0000-0000-0000-000000000000"
ALLOCATION = Allocation(MEMORY_RESOURCE, frozenset({f"m-{UUID}-1"}), (UUID,), 256 << 20)


@pytest.fixture
def files(tmp_path: Path) -> ContainerFiles:
    shim = tmp_path / "shim.so"
    shim.write_bytes(b"library")
    made = ContainerFiles(tmp_path / "state", shim, RuntimeAccess())
    made.install()
    return made


def test_it_goes_with_its_folder_and_ends_with_it(files: ContainerFiles) -> None:
    place = files.folder(ALLOCATION) / "usage"
    try:
        files.create(ALLOCATION)
    except PermissionError as error:
        pytest.skip(f"mount is not allowed here: {error}")
    first = place.stat().st_dev
    assert os.path.ismount(place)
    files.ensure(ALLOCATION)
    assert place.stat().st_dev == first, "mounted once"
    # Somebody else has the same ids, before anything was taken away.
    files.create(ALLOCATION)
    (aside,) = (files.root / "ended").iterdir()
    assert (aside / "usage").stat().st_dev == first != place.stat().st_dev
    files.refresh_usage(ALLOCATION)
    assert os.path.ismount(place)
    files.clear()
    assert not aside.exists()
    assert os.path.ismount(place)
    files.uninstall()
    assert str(files.root) not in Path("/proc/self/mounts").read_text()
    assert not files.root.exists()
