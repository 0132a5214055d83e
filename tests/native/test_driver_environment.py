"""What surrounds the simulated driver: its node, visible devices, faults, other tenants."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.driver_programs import DEADLINE_S, compile_program, run_case
from tests.simulated import SimulatedNode, simulated_node

pytestmark = pytest.mark.xdist_group("driver-environment")

MIXED = "1xT4,2xL4,1xA100-40G"
T4, L4, OTHER_L4, A100 = "Tesla T4", "NVIDIA L4", "NVIDIA L4", "NVIDIA A100-SXM4-40GB"


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("devices", tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def mixed() -> Iterator[SimulatedNode]:
    with simulated_node(MIXED) as node:
        yield node


def listed(devices: Path, node: SimulatedNode, **env: str) -> list[str]:
    """The names of the devices that a program sees, in its order."""
    done = run_case(devices, "list_devices", {**node.env, **env})
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(" ")[2] or line for line in done.stdout.splitlines()]


def test_the_fastest_device_comes_first(devices: Path, mixed: SimulatedNode) -> None:
    assert listed(devices, mixed) == [A100, L4, OTHER_L4, T4]


def test_devices_can_be_ordered_by_their_place(devices: Path, mixed: SimulatedNode) -> None:
    assert listed(devices, mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [T4, L4, OTHER_L4, A100]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("3,0", [T4, A100]),
        ("0", [A100]),
        (" 1 , 3 ", [L4, T4]),
        ("0,9,1", [A100]),
        ("0,x,1", [A100]),
        ("0,,1", [A100]),
        ("1,1", [L4]),
        ("-1", ["CUDA_ERROR_NO_DEVICE"]),
        ("", ["CUDA_ERROR_NO_DEVICE"]),
        ("NoDevFiles", ["CUDA_ERROR_NO_DEVICE"]),
    ],
)
def test_visible_devices(
    visible: str, names: list[str], devices: Path, mixed: SimulatedNode
) -> None:
    assert listed(devices, mixed, CUDA_VISIBLE_DEVICES=visible) == names


def test_visible_devices_by_uuid(devices: Path, mixed: SimulatedNode) -> None:
    uuids = [device.uuid for device in mixed.snapshot().devices]
    assert listed(devices, mixed, CUDA_VISIBLE_DEVICES=uuids[0]) == [T4]
    assert listed(devices, mixed, CUDA_VISIBLE_DEVICES=f"{uuids[3]},{uuids[0]}") == [A100, T4]
    assert listed(devices, mixed, CUDA_VISIBLE_DEVICES=uuids[3][:16]) == [A100]
    assert listed(devices, mixed, CUDA_VISIBLE_DEVICES="GPU-") == ["CUDA_ERROR_NO_DEVICE"]


# --- the node -------------------------------------------------------------------------------


def test_without_a_node_there_is_no_device(devices: Path, mixed: SimulatedNode) -> None:
    env = {key: value for key, value in mixed.env.items() if key != "ALIQUOT_SIM_STATE"}
    done = run_case(devices, "list_devices", env)
    assert (done.stdout, done.stderr) == ("CUDA_ERROR_NO_DEVICE\n", "")
    done = run_case(devices, "list_devices", {**env, "ALIQUOT_SIM_LOG": "1"})
    assert done.stdout == "CUDA_ERROR_NO_DEVICE\n"
    assert "ALIQUOT_SIM_STATE is not set" in done.stderr


def test_a_broken_node_is_told_in_one_line(
    devices: Path, mixed: SimulatedNode, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"x" * 10000)
    for path in (garbage, tmp_path / "missing"):
        done = run_case(devices, "list_devices", {**mixed.env, "ALIQUOT_SIM_STATE": str(path)})
        assert done.stdout == "CUDA_ERROR_SYSTEM_NOT_READY\n"
        assert str(path) in done.stderr
        assert done.stderr.count("\n") == 1


# --- faults and other tenants ---------------------------------------------------------------

CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
print(cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "alloc":
        print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(words[1]))), flush=True)
    elif words[0] == "free":
        print(cuda.cuMemFree_v2(address), flush=True)
    elif words[0] == "context":
        print(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), flush=True)
"""
MIB = 1 << 20
GIB = 1 << 30
OUT_OF_MEMORY, ECC_UNCORRECTABLE, UNKNOWN = 2, 214, 999


class Tenant:
    """A process with a context on device 0 that does as it is told."""

    def __init__(self, node: SimulatedNode) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env=node.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == [0, 0]

    def _answer(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(word) for word in self.process.stdout.readline().split()]

    def say(self, *words: object) -> int:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        return self._answer()[0]

    def __enter__(self) -> "Tenant":
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait(timeout=DEADLINE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-40G") as node:
        yield node


def test_tenants_share_the_memory_of_a_device(node: SimulatedNode) -> None:
    with Tenant(node) as first:
        context_bytes = node.snapshot().devices[0].used_bytes
        with Tenant(node) as second:
            assert first.say("alloc", 30 * GIB) == 0
            assert second.say("alloc", 10 * GIB) == OUT_OF_MEMORY
            assert second.say("alloc", 8 * GIB) == 0
            used = {
                usage.used_bytes
                for process in node.snapshot().processes
                for usage in process.usages
            }
            assert used == {context_bytes + 30 * GIB, context_bytes + 8 * GIB}
            assert node.snapshot().devices[0].used_bytes == 2 * context_bytes + 38 * GIB
            first.process.kill()
            first.process.wait(timeout=DEADLINE_S)
            assert second.say("alloc", 30 * GIB) == 0, "a killed tenant's memory is free at once"


def test_an_injected_allocation_failure_hits_as_often_as_asked(node: SimulatedNode) -> None:
    with Tenant(node) as tenant:
        node.inject(0, "alloc=2")
        assert [tenant.say("alloc", MIB) for _ in range(3)] == [OUT_OF_MEMORY, OUT_OF_MEMORY, 0]


def test_a_lost_device_answers_nothing_any_more(node: SimulatedNode) -> None:
    with Tenant(node) as tenant:
        assert tenant.say("alloc", MIB) == 0
        node.inject(0, "lost")
        assert tenant.say("alloc", MIB) == UNKNOWN
        assert tenant.say("free") == UNKNOWN
        assert tenant.say("context") == UNKNOWN


def test_an_uncorrectable_error_ends_the_contexts_of_a_device(node: SimulatedNode) -> None:
    with Tenant(node) as tenant, Tenant(node) as other:
        assert tenant.say("alloc", MIB) == 0
        node.inject(0, "xid=48")
        assert tenant.say("alloc", MIB) == ECC_UNCORRECTABLE
        assert other.say("alloc", MIB) == ECC_UNCORRECTABLE
        node.inject(0, "clear")
        assert tenant.say("alloc", MIB) == ECC_UNCORRECTABLE, "the context is beyond repair"
        assert tenant.say("context") == 0
        assert tenant.say("alloc", MIB) == 0
