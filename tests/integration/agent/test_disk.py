"""What happens to the node's disk under the agent: full, emptied by a reboot, torn, forged."""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from shim import limits, usage
from simcluster.kubelet import AdmissionError, Kubelet, Pod, StartError
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of, shares_of
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.patience import eventually

UNITS = 320
BOTH_ORDERS = pytest.mark.parametrize("first", [MEMORY_RESOURCE, COMPUTE_RESOURCE])


@contextmanager
def full_disk(agent: AgentProcess) -> Iterator[None]:
    """No file of the agent's grows any more, and none is begun."""
    most, hard = resource.prlimit(agent.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (most, hard))


def written(agent: AgentProcess) -> tuple[set[str], bytes]:
    """Names of all allocations' folders, and the journal."""
    folders = {each.name for each in (agent.state / "alloc").iterdir()}
    return folders, (agent.state / "journal").read_bytes()


def memory_limits(options: RunOptions) -> Path:
    return Path(options.mounted("/etc/aliquot/memory/limits"))


def memory_usage(options: RunOptions) -> Path:
    return Path(options.mounted("/run/aliquot/memory")) / "usage"


def admit_in_time(kubelet: Kubelet, agent: AgentProcess, pod: Pod) -> None:
    """As a controller would try again, and only where the agent's log has the reason: beside a busy
    machine the kubelet's list, which says that somebody is gone, may not come in time."""

    def is_admitted() -> bool:
        try:
            kubelet.admit(pod)
        except AdmissionError:
            if "the kubelet's list of pods is not to be had" not in agent.output:
                raise
            return False
        return True

    eventually(is_admitted)


@BOTH_ORDERS
def test_on_a_full_disk_an_allocation_is_refused_and_nothing_is_half_done(
    kubelet: Kubelet, agent: AgentProcess, first: str
):
    tenant = Pod.asking("tenant", memory=16, compute=30)
    options = kubelet.run(tenant)["main"]
    before = written(agent)
    refusal = pytest.raises(AdmissionError, match=r"cannot be written down: .*make room on that")
    with full_disk(agent), kubelet.order(first), refusal:
        kubelet.admit(Pod.asking("refused", memory=16, compute=30))
    assert written(agent) == before
    with ExitStack() as stack:

        def fill(resource: str, ids: set[str]) -> None:
            if resource != first:
                stack.enter_context(full_disk(agent))

        with kubelet.order(first), kubelet.in_flight(fill), refusal:
            kubelet.admit(Pod.asking("refused-half-way", memory=16, compute=30))
    rest = [
        Pod.asking("whole", memory=UNITS, compute=100),
        Pod.asking("rest", memory=UNITS - 16, compute=70),
    ]
    with kubelet.order(first):
        for pod in rest:
            admit_in_time(kubelet, agent, pod)
    assert_sound(kubelet, tenant, *rest)
    assert caps_of(options) == dict.fromkeys(gpus_of(kubelet, tenant), 16 * UNIT_BYTES)


def test_on_a_full_disk_a_container_waits_for_its_start(kubelet: Kubelet, agent: AgentProcess):
    """What may heal is not the pod's end."""
    pod = Pod.asking("a", memory=16, compute=30)
    kubelet.admit(pod)
    with full_disk(agent), pytest.raises(StartError, match="its files cannot be written"):
        kubelet.start_container(pod)
    options = kubelet.start_in_time(pod)
    assert caps_of(options) == dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES)


def test_after_a_reboot_what_was_in_memory_is_made_again(kubelet: Kubelet, agent: AgentProcess):
    """The kubelet's checkpoint and our state are there; every tmpfs and every socket is gone."""
    pods = [Pod.asking(f"tenant-{number}", memory=200, compute=60) for number in range(2)]
    before = [kubelet.run(pod)["main"] for pod in pods]
    agent.stop()
    kubelet.stop()
    for folder in (agent.state / "alloc").glob("*/usage"):
        shutil.rmtree(folder)
        folder.mkdir()
    shutil.rmtree(kubelet.folder / "pod-resources")
    kubelet.start()
    agent.start_and_wait()
    for pod, options in zip(pods, before, strict=True):
        again = kubelet.start_in_time(pod)
        assert again == options
        assert caps_of(again) == dict.fromkeys(gpus_of(kubelet, pod), 200 * UNIT_BYTES)
        assert shares_of(again) == dict.fromkeys(gpus_of(kubelet, pod), 6000)
        assert usage.read(memory_usage(again), limits.Kind.MEMORY).processes == ()
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("greedy", memory=200, compute=60))


def tear_one_slot(path: Path) -> None:
    """As a writer that was killed leaves it: the newest content is half written."""
    with open(path, "r+b") as file:
        file.seek(128 + 8)
        file.write(b"\xff" * 40)


def tear_everything(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def cut(path: Path) -> None:
    os.truncate(path, 100)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    """As a power failure leaves what was never synced: its name is there, its content is not."""
    os.truncate(path, 0)


def lose(path: Path) -> None:
    """Or not even its folder."""
    shutil.rmtree(path.parent)


def test_torn_limits_are_made_good_before_a_container_starts_again(
    kubelet: Kubelet, agent: AgentProcess
):
    damages = {
        each.__name__: each for each in (tear_one_slot, tear_everything, cut, remove, empty, lose)
    }
    pods = {name: Pod.asking(name.replace("_", "-"), memory=16, compute=10) for name in damages}
    started = {name: kubelet.run(pod)["main"] for name, pod in pods.items()}
    for name, options in started.items():
        damages[name](memory_limits(options))
        assert kubelet.start_in_time(pods[name]) == options
    assert_right(kubelet, pods, started)
    for name, options in started.items():
        damages[name](memory_limits(options))
    agent.kill()
    agent.start_and_wait()
    assert_right(kubelet, pods, started)


def assert_right(kubelet: Kubelet, pods: dict[str, Pod], started: dict[str, RunOptions]) -> None:
    wanted = {
        name: dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES) for name, pod in pods.items()
    }
    assert {name: caps_of(options) for name, options in started.items()} == wanted


def forge(path: Path) -> None:
    """A file of the right form that says that somebody has everything."""
    content = bytearray(path.read_bytes())
    content[64:] = b"\xff" * len(content[64:])
    path.write_bytes(content)


def test_a_forged_account_harms_nobody_and_ends_with_its_container(
    kubelet: Kubelet, agent: AgentProcess
):
    damages = {each.__name__: each for each in (forge, tear_everything, cut, remove)}
    pods = {name: Pod.asking(name.replace("_", "-"), memory=16, compute=10) for name in damages}
    started = {name: kubelet.run(pod)["main"] for name, pod in pods.items()}
    for name, options in started.items():
        damages[name](memory_usage(options))
    kubelet.run(Pod.asking("honest", memory=16, compute=10))
    status, page = agent.get("/metrics")
    assert status == 200
    assert 'pod="honest"' in page
    agent.kill()
    agent.start_and_wait()
    for name, options in started.items():
        assert kubelet.start_in_time(pods[name]) == options
        assert usage.read(memory_usage(options), limits.Kind.MEMORY).processes == ()
    assert_right(kubelet, pods, started)
    assert "Traceback" not in agent.output
