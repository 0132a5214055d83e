import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simcluster.kubelet import Kubelet
from tests.agentprocess import AgentProcess
from tests.simulated import SimulatedNode, simulated_node


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets; pytest's own are too long."""
    folder = Path(tempfile.mkdtemp(prefix="aq-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G") as made:
        yield made


@pytest.fixture
def kubelet(short_path: Path) -> Iterator[Kubelet]:
    with Kubelet(short_path / "kubelet") as started:
        yield started


@pytest.fixture
def make_agent(
    node: SimulatedNode, kubelet: Kubelet, short_path: Path
) -> Iterator[Callable[..., AgentProcess]]:
    """Agents with these settings, on one folder of their own; all are ended with the test."""
    made: list[AgentProcess] = []

    def make(**settings: str) -> AgentProcess:
        agent = AgentProcess(node, kubelet, short_path / "state", **settings)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.stop()


@pytest.fixture
def agent(make_agent: Callable[..., AgentProcess]) -> AgentProcess:
    """One that is ready."""
    return make_agent().start_and_wait()
