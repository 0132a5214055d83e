"""`aliquot plugin --uninstall`: nothing of ours stays, and nothing in use goes."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from tests.agentprocess import AgentProcess
from tests.patience import PATIENCE_S

BUSY = Pod.asking("busy", memory=4, compute=5, namespace="team")


@pytest.fixture
def old_kubelet(kubelet: Kubelet) -> Kubelet:
    """One that has run for long: all its pods are in its list."""
    let_age(kubelet)
    return kubelet


def let_age(kubelet: Kubelet) -> None:
    socket = kubelet.folder / "pod-resources/kubelet.sock"
    an_hour_ago_s = time.time() - 3600
    os.utime(socket, (an_hour_ago_s, an_hour_ago_s))


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
    kubelet.run(BUSY)
    assert agent.terminate() == 0
    result = agent.run("--uninstall")
    assert result.returncode == 2
    assert "still held by team/busy/main" in result.stderr
    assert (agent.state / "lib").exists()
    agent.start_and_wait()


def test_pods_that_end_without_an_agent_have_ended(old_kubelet: Kubelet, agent: AgentProcess):
    old_kubelet.run(BUSY)
    assert agent.terminate() == 0
    old_kubelet.finish(BUSY)
    result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert not agent.state.exists()


def test_a_kubelet_that_has_just_started_may_not_list_all_its_pods(
    kubelet: Kubelet, agent: AgentProcess
):
    kubelet.run(BUSY)
    assert agent.terminate() == 0
    kubelet.finish(BUSY)
    result = agent.run("--uninstall")
    assert result.returncode == 2
    assert "may not have listed all its pods yet" in result.stderr
    assert "was held by team/busy/main" in result.stderr
    let_age(kubelet)
    assert agent.run("--uninstall").returncode == 0


def test_a_lost_journal_does_not_make_anybody_gone(old_kubelet: Kubelet, agent: AgentProcess):
    old_kubelet.run(BUSY)
    assert agent.terminate() == 0
    (agent.state / "journal").unlink()
    result = agent.run("--uninstall")
    assert result.returncode == 2
    assert "still held by team/busy/main" in result.stderr
    assert list((agent.state / "alloc").iterdir())


def test_without_a_kubelet_its_last_records_count(old_kubelet: Kubelet, agent: AgentProcess):
    old_kubelet.run(BUSY)
    assert agent.terminate() == 0
    old_kubelet.finish(BUSY)
    old_kubelet.stop()
    result = agent.run("--uninstall")
    assert result.returncode == 2
    assert "the kubelet does not say who holds" in result.stderr
    assert "it was team/busy/main; start the kubelet" in result.stderr


def test_a_container_that_nobody_lists_keeps_what_it_has_mounted(
    old_kubelet: Kubelet, agent: AgentProcess, tmp_path: Path
):
    try:
        check_containers()
    except NoContainers as error:
        pytest.skip(str(error))
    (options,) = old_kubelet.run(BUSY).values()
    started = "print('up', flush=True); input()"
    with start_process(
        options,
        [sys.executable, "-c", started],
        {"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as container:
        assert container.stdout.readline() == "up\n"
        assert agent.terminate() == 0
        old_kubelet.finish(BUSY)
        result = agent.run("--uninstall")
        assert result.returncode == 2
        assert "still held by team/busy/main" in result.stderr
        assert list((agent.state / "alloc").iterdir())
        container.stdin.write("\n")
    assert agent.run("--uninstall").returncode == 0


def test_who_waits_cleans_up_after_the_agent_and_the_last_container(
    old_kubelet: Kubelet, agent: AgentProcess
):
    old_kubelet.run(BUSY)
    with agent.begin("--uninstall", "--wait") as cleaner:
        assert "stop the agent of this node first" in cleaner.stderr.readline()
        assert agent.terminate() == 0
        assert "still held by team/busy/main" in cleaner.stderr.readline()
        old_kubelet.finish(BUSY)
        assert cleaner.wait(PATIENCE_S) == 0
    assert not agent.state.exists()


def test_sockets_and_the_cdi_file_go_also_when_our_folder_has_gone_before(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess], tmp_path: Path
):
    cdi = tmp_path / "var/run/cdi/aliquot.dev-gpu.json"
    cdi.parent.mkdir(parents=True)
    cdi.touch()
    (kubelet.plugins / "aliquot-gpu-memory-12345678.sock").touch()
    agent = make_agent(gpu_access="cdi", host_dir=str(tmp_path))
    shutil.rmtree(agent.state, ignore_errors=True)
    result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert not cdi.exists()
    assert not list(kubelet.plugins.glob("aliquot-*"))
    assert not agent.state.exists()


@pytest.mark.parametrize("there", [["thesis.txt"], ["journal", "lib/libc.so.6", "alloc/x"]])
def test_a_folder_that_never_was_an_agents_is_left_alone(
    make_agent: Callable[..., AgentProcess], tmp_path: Path, there: list[str]
):
    for each in there:
        path = tmp_path / each
        path.parent.mkdir(exist_ok=True)
        path.write_text("dear")
    before = sorted(tmp_path.rglob("*"))
    result = make_agent(state_dir=str(tmp_path)).run("--uninstall")
    assert result.returncode == 2
    assert f"{tmp_path} is no folder of an agent, so nothing was removed" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_what_others_have_put_beside_ours_is_left_and_named(
    old_kubelet: Kubelet, agent: AgentProcess
):
    assert agent.terminate() == 0
    (agent.state / "thesis.txt").write_text("dear")
    result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert f"what is left in {agent.state} is not ours: thesis.txt\n" in result.stdout
    assert [path.name for path in agent.state.iterdir()] == ["thesis.txt"]


def test_waiting_is_for_uninstalling(make_agent: Callable[..., AgentProcess]):
    result = make_agent().run("--wait")
    assert result.returncode == 2
    assert "--wait goes with --uninstall" in result.stderr
