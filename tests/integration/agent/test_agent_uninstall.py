"""`aliquot plugin --uninstall`: nothing of ours stays, and nothing in use goes."""

from collections.abc import Callable

from simcluster.kubelet import Kubelet, Pod
from tests.agentprocess import AgentProcess


def test_what_the_agent_put_on_the_node_is_taken_away(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent().start_and_wait()
    running = agent.run("--uninstall")
    assert running.returncode == 2
    assert "stop the agent of this node first" in running.stderr
    assert agent.terminate() == 0
    result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert not agent.state.exists()
    assert {path.name for path in kubelet.plugins.glob("*.sock")} == {"kubelet.sock"}
    again = agent.run("--uninstall")
    assert (again.returncode, again.stdout) == (0, f"nothing of ours is at {agent.state}\n")


def test_what_containers_use_stays(kubelet: Kubelet, agent: AgentProcess):
    kubelet.run(Pod.asking("busy", memory=4, compute=5, namespace="team"))
    assert agent.terminate() == 0
    result = agent.run("--uninstall")
    assert result.returncode == 2
    assert "team/busy" in result.stderr
    assert (agent.state / "lib").exists()
    agent.start_and_wait()
