"""The kubelet's stand-in beside an API server: bound pods run, end and go as they would."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.runoptions import RunOptions
from simcluster.kubelet.workers import PodWorkers
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, bound, pod_path

Object = dict[str, Any]

# Lives until its input ends, and then ends with the code that it was told.
PROGRAM = "import sys; sys.exit(int(sys.stdin.read() or 0))"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.add(node_manifest(NODE))
        yield started


@pytest.fixture
def workers(server: ApiServer, kubelet: Kubelet, agent: AgentProcess) -> Iterator[PodWorkers]:
    def launch(_: Object, options: RunOptions) -> subprocess.Popen[bytes]:
        assert options.mounted("/etc/aliquot/memory/limits")
        return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE)

    made = PodWorkers(kubelet, server.client(), NODE, launch)
    made.start()
    yield made
    made.stop()


def run(server: ApiServer, workers: PodWorkers, pod: Pod) -> subprocess.Popen[bytes]:
    server.add({**bound(pod), "status": {"phase": "Pending"}})
    wait_phase(server, pod, "Running")
    process = workers.process_of(pod.uid)
    assert process is not None
    return process


def wait_phase(server: ApiServer, pod: Pod, phase: str) -> Object:
    def found() -> Object | None:
        stored = server.get(pod_path(pod))
        assert stored is not None
        return stored if stored["status"]["phase"] == phase else None

    stored = server.wait_for(found)
    assert stored is not None
    return stored


def end(process: subprocess.Popen[bytes], code: int) -> None:
    assert process.stdin is not None
    process.stdin.write(str(code).encode())
    process.stdin.close()


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_pod_runs_until_its_process_ends(
    server: ApiServer, kubelet: Kubelet, workers: PodWorkers, code: int, phase: str
):
    pod = Pod.asking("web", memory=16, compute=30)
    process = run(server, workers, pod)
    assert len(kubelet.ids_of(pod)[MEMORY_RESOURCE]) == 16
    end(process, code)
    stored = wait_phase(server, pod, phase)
    ended = stored["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == code
    # Whoever is bound because of this news must find the ids free.
    assert pod not in kubelet.active_pods()


def test_a_deleted_pod_ends_and_goes(server: ApiServer, kubelet: Kubelet, workers: PodWorkers):
    pod = Pod.asking("web", memory=16, compute=30)
    process = run(server, workers, pod)
    server.client().delete(pod_path(pod))
    server.wait_for(lambda: server.get(pod_path(pod)) is None)
    assert process.wait(60) != 0
    assert process.stdin is not None
    process.stdin.close()
    server.wait_for(lambda: pod not in kubelet.active_pods())


def test_a_refused_pod_has_failed_with_the_agents_words(
    server: ApiServer, kubelet: Kubelet, workers: PodWorkers
):
    # Both GPUs together have it, none alone has.
    pod = Pod.asking("wide", memory=400, compute=30)
    server.add({**bound(pod), "status": {"phase": "Pending"}})
    status = wait_phase(server, pod, "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "320 units (80 GiB)" in status["message"]
    assert workers.process_of(pod.uid) is None


def test_the_node_has_what_the_agent_advertises(
    server: ApiServer, workers: PodWorkers, agent: AgentProcess
):
    def amounts() -> tuple[str, str]:
        stored = server.get(f"/api/v1/nodes/{NODE}")
        assert stored is not None
        allocatable = stored["status"]["allocatable"]
        return allocatable.get(MEMORY_RESOURCE), allocatable.get(COMPUTE_RESOURCE)

    server.wait_for(lambda: amounts() == ("640", "200"))
    agent.kill()
    server.wait_for(lambda: amounts() == ("0", "0"))


def test_stopping_ends_every_process(
    server: ApiServer, workers: PodWorkers, make_agent: Callable[..., AgentProcess]
):
    processes = [
        run(server, workers, Pod.asking(name, memory=16, compute=30)) for name in ("a", "b")
    ]
    workers.stop()
    for each in processes:
        assert each.poll() is not None
        assert each.stdin is not None
        each.stdin.close()
