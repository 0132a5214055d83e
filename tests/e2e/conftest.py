"""A cluster for the length of the session; nothing here is collected outside of `make e2e`."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster
    from tests.e2e.installation import Installation
    from tests.e2e.workloads import Workloads

# The name of the sandbox that we are in.
INSIDE = "ALIQUOT_E2E" in os.environ

collect_ignore_glob = [] if INSIDE else ["*/test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> "Iterator[Cluster]":
    from tests.e2e.cluster import Cluster

    with Cluster() as started:
        yield started


@pytest.fixture(scope="session")
def installed(cluster: "Cluster") -> "Installation":
    """Aliquot, from its own manifests, as docs/install.md says."""
    from tests.e2e.installation import Installation

    installation = Installation(cluster)
    installation.install()
    return installation


@pytest.fixture
def workloads(installed: "Installation") -> "Iterator[Workloads]":
    from tests.e2e.workloads import Workloads

    installed.await_ready()
    started = Workloads(installed.cluster)
    yield started
    started.leave()
