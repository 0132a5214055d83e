from collections.abc import Iterator

import pytest

from aliquot.kubernetes.client import ApiClient
from tests.apiserver import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as standing:
        yield standing


@pytest.fixture
def client(server: ApiServer) -> ApiClient:
    return server.client()
