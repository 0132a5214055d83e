"""`/view` of a real agent and `aliquot top` of its node: a container is shown with what it does."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bench.top_worker
from aliquot.protocol import names, view
from aliquot.protocol.inventory import decode
from aliquot.protocol.view import ClusterView, GpuView, NodeView
from deviceplugin.telemetry.history import STEP_S
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, kubeconfig
from tests.patience import PATIENCE_S, eventually

MIB, GIB = 1 << 20, 1 << 30
WORKER = Path(bench.top_worker.__file__)
MEMORY_MIB = 1024


@pytest.fixture
def work() -> Iterator[Callable[[RunOptions], None]]:
    """Containers that hold memory and would use their GPU all of the time."""
    try:
        check_containers()
    except NoContainers as error:
        pytest.skip(str(error))
    started: list[subprocess.Popen[str]] = []

    def start(options: RunOptions) -> None:
        command = [sys.executable, str(WORKER), str(MEMORY_MIB), "20", "0"]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = start_process(options, command, environment, text=True, **pipes)
        started.append(process)
        assert process.stdout.readline() == "begun\n"

    yield start
    for process in started:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE_S)


def node_view(agent: AgentProcess, query: str = "") -> NodeView:
    status, body = agent.get(f"/view{query}")
    assert status == 200, body
    return view.decode(body.encode(), NodeView)


def shared(agent: AgentProcess) -> GpuView | None:
    """The one GPU that containers have a part of."""
    return next((gpu for gpu in node_view(agent).gpus if gpu.slices), None)


def port_of(agent: AgentProcess) -> str:
    found = re.search(r"answers HTTP on port (\d+)", agent.output)
    assert found is not None
    return found[1]


def top(agent: AgentProcess, *words: str) -> str:
    url = f"http://127.0.0.1:{port_of(agent)}"
    done = subprocess.run(
        [sys.executable, "-m", "aliquot.cli", "top", "--agent", url, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_node_without_containers_shows_its_gpus(agent: AgentProcess):
    told = node_view(agent)
    assert (told.name, told.problem, told.history) == ("node-1", "", None)
    assert [gpu.index for gpu in told.gpus] == [0, 1]
    assert all(gpu.memory_advertised_bytes == 80 * GIB for gpu in told.gpus)
    assert all(gpu.slices == () for gpu in told.gpus)
    assert all(gpu.utilization_percent is not None for gpu in told.gpus)
    assert set(node_view(agent, "?history").history or ()) == {gpu.uuid for gpu in told.gpus}


def test_a_container_that_works_is_shown_with_what_it_holds_and_does(
    kubelet: Kubelet, agent: AgentProcess, work: Callable[[RunOptions], None]
):
    options = kubelet.run(Pod.asking("train", memory=16, compute=30, namespace="team"))["main"]
    assert eventually(lambda: shared(agent)).slices[0].memory_used_bytes == 0, "before it starts"
    work(options)

    def busy() -> GpuView | None:
        gpu = shared(agent)
        if gpu is None or not gpu.memory_used_bytes or not gpu.slices[0].memory_used_bytes:
            return None
        return gpu if (gpu.slices[0].compute_used_percent or 0) > 1 else None

    gpu = eventually(busy)
    (only,) = gpu.slices
    assert (only.namespace, only.pod, only.container) == ("team", "train", "main")
    assert only.is_running
    assert (only.memory_limit_bytes, only.compute_percent) == (4 * GIB, 30.0)
    assert MEMORY_MIB * MIB <= (only.memory_used_bytes or 0) <= 4 * GIB
    assert only.throttled_percent is not None

    line = next(line for line in top(agent).splitlines() if "team/train" in line)
    assert re.search(r"1(\.\d)?/4Gi .* \d+/30%", line), line
    told = view.decode(top(agent, "-o", "json", "train").encode(), ClusterView)
    assert [each.pod for node in told.nodes for gpu in node.gpus for each in gpu.slices] == [
        "train"
    ]
    assert "team/train" not in top(agent, "-n", "other")


@pytest.mark.slow
def test_the_history_grows_by_whole_steps(
    kubelet: Kubelet, agent: AgentProcess, work: Callable[[RunOptions], None]
):
    work(kubelet.run(Pod.asking("train", memory=16, compute=30))["main"])

    uuid = eventually(lambda: shared(agent)).uuid

    def complete() -> list[float | None]:
        told = node_view(agent, "?history").history
        assert told is not None
        assert told[uuid].end_at % STEP_S == 0
        return [each for each in told[uuid].compute_used_percent if each]

    assert eventually(complete, 4 * STEP_S + PATIENCE_S)


def test_the_inventory_says_where_the_agent_answers(
    make_agent: Callable[..., AgentProcess], short_path: Path
):
    with ApiServer() as server:
        server.add(node_manifest(NODE))
        agent = make_agent(api_server="auto", listen="0.0.0.0:0")
        agent.environment |= {
            "KUBECONFIG": kubeconfig(server, short_path / "kubeconfig"),
            "POD_IP": "fd00::7",
        }
        agent.start_and_wait()

        def told() -> str:
            found = server.get(f"/api/v1/nodes/{NODE}")
            assert found is not None
            return str(found["metadata"].get("annotations", {}).get(names.INVENTORY, ""))

        assert decode(server.wait_for(told)).agent_url == f"http://[fd00::7]:{port_of(agent)}"
        agent.terminate()
