from collections.abc import Iterator

import pytest

from aliquot.kubernetes.client import ApiClient
from simcluster.apiserver import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as standing:
        yield standing


@pytest.fixture
def client(server: ApiServer) -> ApiClient:
    return server.client()
