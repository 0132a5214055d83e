"""What nobody should send or write, and what happens when somebody does."""

import socket
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.kubelet import wire
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from simcluster.kubelet import AdmissionError, Kubelet, Pod
from simcluster.kubelet.books import assert_sound
from simcluster.kubelet.endpoint import CallError, Endpoint
from tests.agentprocess import AgentProcess
from tests.patience import eventually


def endpoint(kubelet: Kubelet, resource: str = MEMORY_RESOURCE) -> Endpoint:
    found = kubelet.manager.endpoints[resource]
    assert isinstance(found, Endpoint)
    return found


def some_ids(kubelet: Kubelet, count: int = 1) -> list[str]:
    return sorted(kubelet.manager.healthy[MEMORY_RESOURCE])[:count]


NEVER_ADVERTISED = (
    [""],
    ["nonsense"],
    ["m-GPU-00000000-0000-0000-0000-000000000000-0"],
    ["m-GPU-zzz-1"],
    ["m-\x00-1"],
    ["c-GPU-00000000-0000-0000-0000-000000000000-0"],
    ["m-" + "9" * 5000],
    [],
)


def test_ids_that_were_never_advertised_are_refused(kubelet: Kubelet, agent: AgentProcess):
    for ids in NEVER_ADVERTISED:
        with pytest.raises(CallError, match="FailedPrecondition"):
            endpoint(kubelet).allocate(ids)
    with pytest.raises(CallError, match="FailedPrecondition"):
        endpoint(kubelet).prefer(["a", "b"], ["c"], 2)
    with pytest.raises(CallError):
        endpoint(kubelet).pre_start(["m-GPU-00000000-0000-0000-0000-000000000000-0"])
    kubelet.run(Pod.asking("a", memory=1, compute=1))
    assert "Traceback" not in agent.output


def test_ids_of_the_other_resource_of_beyond_the_gpu_and_twice_are_refused(
    kubelet: Kubelet, agent: AgentProcess
):
    (known,) = some_ids(kubelet)
    beyond = known.rpartition("-")[0] + "-99999"
    for ids in (
        [known.replace("m-", "c-", 1)],
        [beyond],
        [known, beyond],
        [known, known],
    ):
        with pytest.raises(CallError, match="FailedPrecondition"):
            endpoint(kubelet).allocate(ids)
    pods = [Pod.asking(f"whole-{number}", memory=320, compute=100) for number in range(2)]
    for pod in pods:
        kubelet.run(pod)
    assert_sound(kubelet, *pods)


def test_sizes_that_make_no_sense_do_no_harm(kubelet: Kubelet, agent: AgentProcess):
    for size in (-5, 0, 2**31 - 1):
        with pytest.raises(CallError, match="FailedPrecondition"):
            endpoint(kubelet).prefer(some_ids(kubelet, 10), [], size)
    kubelet.run(Pod.asking("a", memory=1, compute=1))
    assert "Traceback" not in agent.output


def test_bytes_that_are_no_message_are_answered_by_an_error(kubelet: Kubelet, agent: AgentProcess):
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(wire.address(endpoint(kubelet).socket), options=options) as channel:
        call = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        with pytest.raises(grpc.RpcError):
            call(b"\xff" * 1000, timeout=60)
    kubelet.run(Pod.asking("a", memory=1, compute=1))


def test_a_request_for_several_containers_is_answered_for_each(
    kubelet: Kubelet, agent: AgentProcess
):
    first, second = some_ids(kubelet, 2)
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(wire.address(endpoint(kubelet).socket), options=options) as channel:
        call = wire.caller(channel, api.DESCRIPTOR, "DevicePlugin", "Allocate")
        request = api.AllocateRequest(
            container_requests=[
                api.ContainerAllocateRequest(devices_ids=[each]) for each in (first, second)
            ]
        )
        assert len(call(request, timeout=60).container_responses) == 2


def test_a_pod_larger_than_any_gpu_is_refused_with_the_largest(
    kubelet: Kubelet, agent: AgentProcess
):
    with pytest.raises(AdmissionError, match=r"321 units .*320 units"):
        kubelet.admit(Pod.asking("huge", memory=321, compute=10))


@pytest.mark.parametrize("content", [b"", b'{"Data": 7}', b"[" * 100_000])
def test_an_unreadable_checkpoint_is_left_aside(
    kubelet: Kubelet, agent: AgentProcess, content: bytes
):
    pod = Pod.asking("a", memory=100, compute=10)
    kubelet.run(pod)
    kubelet.checkpoint.write_bytes(content)
    agent.kill()
    kubelet.checkpoint.write_bytes(content)
    agent.start_and_wait()
    assert "checkpoint is left aside" in agent.output
    other = Pod.asking("b", memory=250, compute=10)
    kubelet.run(other)
    assert_sound(kubelet, pod, other)


def test_a_typo_in_the_config_file_is_refused_with_line_and_name(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent()
    config = agent.state.with_name("agent.toml")
    config.write_text('# ours\nmemory-unti = "1Gi"\n')
    result = agent.run("--config", str(config))
    assert result.returncode == 2
    assert f"{config}, line 2: there is no setting memory-unti" in result.stderr
    assert not kubelet.registrations


def test_units_that_are_too_small_for_the_kubelet_are_refused_with_one_that_works(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent(memory_unit="1Mi").start()
    assert agent.wait_exit() != 0
    assert "the smallest unit that works here is" in agent.output
    assert not kubelet.registrations


def test_a_dry_run_says_what_would_be_advertised_and_does_nothing(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent()
    result = agent.run("--dry-run")
    assert result.returncode == 0, result.stderr
    assert f"would advertise 640 of {MEMORY_RESOURCE}, each 256Mi" in result.stdout
    assert f"would advertise 200 of {COMPUTE_RESOURCE}, each 1 percent" in result.stdout
    assert not kubelet.registrations
    assert not agent.state.exists()


def test_a_dry_run_says_what_will_not_work(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = make_agent(listen=f"127.0.0.1:{port}", memory_kept_back="80Gi").run("--dry-run")
    assert result.returncode == 0, result.stderr
    assert f"but: cannot listen on 127.0.0.1:{port}" in result.stdout
    assert "but: GPU 1 has 80Gi, which leaves no memory unit of 256Mi" in result.stdout


def test_gpus_of_which_settings_leave_nothing_are_warned_of(
    make_agent: Callable[..., AgentProcess],
):
    agent = make_agent(memory_kept_back="80Gi").start()
    eventually(lambda: "GPU 1 has 80Gi, which leaves no memory unit of 256Mi" in agent.output)


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize("name", ["sim_state", "sim_libraries"])
def test_simulated_gpus_that_are_not_there_are_named(
    make_agent: Callable[..., AgentProcess], name: str, more: list[str]
):
    result = make_agent(**{name: "/nonexistent/x"}).run(*more)
    assert result.returncode == 2
    flag = f"--{name.replace('_', '-')}"
    assert f"{flag}: there is no /nonexistent/x; `aliquot sim host` makes it" in result.stderr


def test_flags_are_written_out(make_agent: Callable[..., AgentProcess]):
    result = make_agent().run("--memory-uni", "512Mi", "--dry-run")
    assert result.returncode == 2
    assert "unrecognized arguments: --memory-uni" in result.stderr


def test_a_state_folder_that_cannot_be_written_is_named(
    make_agent: Callable[..., AgentProcess], short_path: Path
) -> None:
    (short_path / "file").write_text("in the way")
    agent = make_agent(state_dir=str(short_path / "file"))
    ended = agent.run()
    assert ended.returncode == 1
    assert f"{short_path / 'file'} cannot be set up" in ended.stderr
    assert "allowed to write there" in ended.stderr
