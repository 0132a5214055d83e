"""A cluster for the length of the session; nothing here is collected outside of `make e2e`."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

INSIDE = os.environ.get("ALIQUOT_E2E") == "1"

collect_ignore_glob = [] if INSIDE else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> "Iterator[Cluster]":
    from tests.e2e.cluster import Cluster

    with Cluster() as started:
        yield started
