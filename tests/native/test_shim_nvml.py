"""NVML shows a container its own GPUs, its slice of their memory, and its own processes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgpu.kernels import TEST_PTX
from simgpu.node import LIBRARIES
from tests.capped import GIB, PATIENCE_S, Share
from tests.native.cuda_client import OUT, Client
from tests.native.road_programs import build
from tests.simulated import simulated_node

NOT_FOUND = 6


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """Two of four GPUs, the last one first; one of them without a cap."""
    with simulated_node("4xH100-80G") as node:
        yield Share.make(node, tmp_path / "run", {3: GIB, 1: None})


def observe(share: Share, code: str, **more: str) -> Any:
    """What a program on nvidia-ml-py prints as JSON."""
    preamble = "import json, pynvml as n\nn.nvmlInit()\n"
    done = share.run([sys.executable, "-c", preamble + code], **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_hidden_gpus_do_not_exist(share: Share) -> None:
    uuids = [device.uuid for device in share.node.snapshot().devices]
    seen = observe(
        share,
        f"""
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
def gone(ask, *words):
    try:
        ask(*words)
    except n.NVMLError as error:
        return error.value
    return 0
everything = {uuids!r}
by_uuid = [gone(n.nvmlDeviceGetHandleByUUID, uuid) for uuid in everything]
past_the_end = gone(n.nvmlDeviceGetHandleByIndex, len(handles))
buses = [n.nvmlDeviceGetPciInfo(handle).busId for handle in handles]
by_bus = [gone(n.nvmlDeviceGetHandleByPciBusId, bus) for bus in buses]
print(json.dumps(dict(
    uuids=[n.nvmlDeviceGetUUID(handle) for handle in handles],
    indices=[n.nvmlDeviceGetIndex(handle) for handle in handles],
    near=[n.nvmlDeviceGetUUID(h) for h in n.nvmlDeviceGetTopologyNearestGpus(handles[0], 50)],
    by_uuid=by_uuid, by_bus=by_bus, past_the_end=past_the_end)))
""",
    )
    assert seen["uuids"] == [uuids[1], uuids[3]]
    assert seen["indices"] == [0, 1]
    assert set(seen["near"]) <= {uuids[1], uuids[3]}
    assert seen["by_uuid"] == [NOT_FOUND, 0, NOT_FOUND, 0]
    assert seen["by_bus"] == [0, 0]
    assert seen["past_the_end"] == 2


def test_memory_is_the_slice(share: Share) -> None:
    seen = """
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
infos = [n.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
infos += [n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2) for handle in handles]
print(json.dumps([[info.total, info.free, info.used] for info in infos]))
"""
    whole = share.node.snapshot().devices[1].memory_bytes
    for total, free, used in observe(share, seen)[1::2]:
        assert (total, free, used) == (GIB, GIB, 0)
    with Client(share) as client:
        client.open()
        client.made("cuMemAlloc_v2", OUT, 100 << 20)
        held = client.held_bytes()
        answers = observe(share, seen)
        for total, free, used in answers[1::2]:
            assert (total, free, used) == (GIB, GIB - held, held)
        for total, _free, _used in answers[0::2]:
            assert total == whole


def test_processes_are_the_containers_own(share: Share, tmp_path: Path) -> None:
    other = Share.make(share.node, tmp_path / "other", {3: 10 * GIB, 1: 10 * GIB})
    code = """
handle = n.nvmlDeviceGetHandleByIndex(1)
lists = [n.nvmlDeviceGetComputeRunningProcesses_v2(handle)]
lists.append(n.nvmlDeviceGetComputeRunningProcesses_v3(handle))
lists.append(n.nvmlDeviceGetGraphicsRunningProcesses(handle))
details = n.nvmlDeviceGetRunningProcessDetailList(handle, n.nvmlProcessDetailList_v1, 0)
pids = [[p.pid for p in processes] for processes in lists]
used = [p.usedGpuMemory for p in lists[1]]
print(json.dumps([pids, used, [detail.pid for detail in details]]))
"""
    with Client(share) as ours, Client(other) as theirs:
        ours.open()
        theirs.open()
        pid = ours.process.pid
        pids, used, details = observe(share, code)
        assert pids == [[pid], [pid], []]
        assert used == [ours.used_bytes(3)]
        assert details == [pid]
        assert observe(other, code)[0][1] == [theirs.process.pid]


def spin(client: Client) -> None:
    """Keeps the GPU busy for 400 ms, two of NVML's windows, and waits for the end."""
    module = client.made("cuModuleLoadData", OUT, TEST_PTX)
    function = client.made("cuModuleGetFunction", OUT, module, "aliquot_spin_us_100")
    for _ in range(4000):
        client.made("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    client.made("cuCtxSynchronize")


def test_utilisation_is_of_the_containers_own_processes(share: Share, tmp_path: Path) -> None:
    other = Share.make(share.node, tmp_path / "other", {3: 10 * GIB})
    code = """
handle = n.nvmlDeviceGetHandleByIndex(n.nvmlDeviceGetCount() - 1)
try:
    samples = n.nvmlDeviceGetProcessUtilization(handle, 0)
except n.NVMLError_NotFound:
    samples = []
print(json.dumps([sample.pid for sample in samples]))
"""
    with Client(share) as ours, Client(other) as theirs:
        ours.open()
        theirs.open()
        # Samples are forgotten after ten seconds: on a busy machine, it is done again.
        for _ in range(10):
            spin(theirs)
            spin(ours)
            seen = observe(share, code)
            assert set(seen) <= {ours.process.pid}
            if seen:
                return
        pytest.fail("NVML never showed the container's own process")


@pytest.mark.parametrize("road", ["linked", "dlsym"])
def test_by_every_road(share: Share, road: str) -> None:
    flags = ("-DLINKED",) if road == "linked" else ()
    hidden = share.node.snapshot().devices[0].uuid
    done = share.run([build("nvml_road.c", *flags, *_link(road)), hidden])
    assert done.stdout == "count=2 total=1024 hidden=6\n", done.stderr


def _link(road: str) -> tuple[str, ...]:
    return (f"-L{LIBRARIES}", "-l:libnvidia-ml.so.1") if road == "linked" else ()


@pytest.mark.parametrize("tool", ["gpustat", "nvitop"])
def test_unmodified_tools_show_the_slice(share: Share, tool: str) -> None:
    program = Path(sys.executable).with_name(tool)
    if not program.exists():
        pytest.skip(f"{tool} is not installed")
    arguments = ["--json"] if tool == "gpustat" else ["--once", "--ascii"]
    done = subprocess.run(
        [program, *arguments],
        env=share.environment(TERM="xterm", COLUMNS="120", LINES="50"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    if tool == "gpustat":
        gpus = json.loads(done.stdout)["gpus"]
        assert [gpu["memory.total"] for gpu in gpus] == [81559, 1024]
    else:
        assert "1024MiB" in done.stdout or "1.00GiB" in done.stdout or "1024.0MiB" in done.stdout
