from collections.abc import Iterator

import pytest

from simcluster.apiserver import ApiServer, node


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """With the node n1."""
    with ApiServer() as standing:
        standing.add(node("n1"))
        yield standing
