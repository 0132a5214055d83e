import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets; pytest's own are too long."""
    folder = Path(tempfile.mkdtemp(prefix="aq-"))
    yield folder
    shutil.rmtree(folder)
