from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.agent_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Two GPUs of 16 units."""
    made = Node(tmp_path)
    yield made
    made.journal.close()
