"""How simulated devices reach each other and the CPUs, as NVML shows it."""

from collections.abc import Iterator

import pytest

from tests.native.nvml_observer import Observer, observing
from tests.simulated import simulated_node

INVALID_ARGUMENT, NOT_SUPPORTED, VERSION_MISMATCH = 2, 3, 25
P2P_CHIPSET_NOT_SUPPORTED, P2P_GPU_NOT_SUPPORTED, P2P_NOT_SUPPORTED = 1, 2, 5


@pytest.fixture(scope="module")
def eight() -> Iterator[Observer]:
    """Eight GPUs behind an NVSwitch, and some that are linked in pairs."""
    with (
        simulated_node("8xH100-80G,2xA100-40G,3xV100-16G") as node,
        observing(node.env) as observer,
    ):
        yield observer


@pytest.fixture(scope="module")
def on_the_bus() -> Iterator[Observer]:
    """Boards that have nothing but PCIe."""
    with simulated_node("2xL4,2xRTX-4090") as node, observing(node.env) as observer:
        yield observer


def test_pairs_hang_on_one_switch_and_halves_on_one_numa_node(eight: Observer) -> None:
    levels = eight.ask(
        "[nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(peer)) for peer in range(13)]"
    )
    assert levels == [0] + [10] + [40] * 6 + [50] * 5
    nearest = "[nvmlDeviceGetIndex(near) for near in nvmlDeviceGetTopologyNearestGpus(gpu(2), {})]"
    assert eight.ask(nearest.format("NVML_TOPOLOGY_SINGLE")) == [3]
    assert eight.ask(nearest.format("NVML_TOPOLOGY_NODE")) == [0, 1, 4, 5, 6, 7]
    assert eight.ask(nearest.format("NVML_TOPOLOGY_SYSTEM")) == [8, 9, 10, 11, 12]


def test_numa_nodes_are_shown_as_memory_affinity(eight: Observer) -> None:
    masks = eight.ask(
        "[list(nvmlDeviceGetMemoryAffinity(gpu(index), 1, NVML_AFFINITY_SCOPE_NODE))"
        " for index in range(13)]"
    )
    assert masks == [[1]] * 8 + [[2]] * 5


def test_every_device_is_near_some_cpu(eight: Observer) -> None:
    words = eight.ask("list(nvmlDeviceGetCpuAffinity(gpu(0), 64))")
    cpus = [cpu for cpu in range(64 * 64) if words[cpu // 64] >> cpu % 64 & 1]
    assert cpus
    found = eight.ask(
        f"[nvmlDeviceGetIndex(near) for near in nvmlSystemGetTopologyGpuSet({cpus[0]})]"
    )
    assert 0 in found
    eight.do("before = os.sched_getaffinity(0); nvmlDeviceSetCpuAffinity(gpu(0))")
    assert set(eight.ask("list(os.sched_getaffinity(0))")) <= set(cpus)
    eight.do("nvmlDeviceClearCpuAffinity(gpu(0)); after = os.sched_getaffinity(0)")
    assert eight.ask("after >= before")


def test_a_switch_is_at_the_end_of_every_link_of_many_boards(eight: Observer) -> None:
    assert eight.ask("[nvmlDeviceGetNvLinkState(gpu(0), link) for link in range(18)]") == [1] * 18
    assert eight.error("nvmlDeviceGetNvLinkState(gpu(0), 18)") == INVALID_ARGUMENT
    assert eight.ask("nvmlDeviceGetNvLinkRemoteDeviceType(gpu(0), 0)") == 2
    assert eight.ask("nvmlDeviceGetNvLinkVersion(gpu(0), 5)") == 4
    remote = eight.ask("nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 3).busId")
    ours = eight.ask("[nvmlDeviceGetPciInfo(gpu(index)).busId for index in range(13)]")
    assert remote not in ours


def test_two_boards_are_linked_to_each_other(eight: Observer) -> None:
    assert eight.ask("[nvmlDeviceGetNvLinkState(gpu(8), link) for link in range(12)]") == [1] * 12
    assert eight.ask("nvmlDeviceGetNvLinkRemoteDeviceType(gpu(8), 11)") == 0
    assert eight.ask(
        "nvmlDeviceGetNvLinkRemotePciInfo(gpu(8), 11).busId == nvmlDeviceGetPciInfo(gpu(9)).busId"
    )


def test_boards_without_links_say_so(on_the_bus: Observer) -> None:
    assert on_the_bus.error("nvmlDeviceGetNvLinkState(gpu(0), 0)") == NOT_SUPPORTED
    on_the_bus.do("info = c_nvmlGpuFabricInfo_t()")
    fabric = on_the_bus.ask("lib.nvmlDeviceGetGpuFabricInfo(gpu(0), ctypes.byref(info))")
    assert fabric == NOT_SUPPORTED


def peer_status(observer: Observer, first: int, second: int, capability: str) -> int:
    index = ("READ", "WRITE", "NVLINK", "ATOMICS").index(capability)
    return int(observer.ask(f"nvmlDeviceGetP2PStatus(gpu({first}), gpu({second}), {index})"))


def test_linked_peers_reach_each_other(eight: Observer) -> None:
    for capability in ("NVLINK", "READ", "WRITE", "ATOMICS"):
        assert peer_status(eight, 0, 7, capability) == 0
    assert peer_status(eight, 0, 8, "NVLINK") == P2P_NOT_SUPPORTED
    assert peer_status(eight, 0, 8, "READ") == P2P_GPU_NOT_SUPPORTED


def test_equal_boards_reach_each_other_over_the_bus_but_not_those_for_games(
    on_the_bus: Observer,
) -> None:
    assert peer_status(on_the_bus, 0, 1, "READ") == 0
    assert peer_status(on_the_bus, 0, 1, "NVLINK") == P2P_NOT_SUPPORTED
    assert peer_status(on_the_bus, 2, 3, "READ") == P2P_CHIPSET_NOT_SUPPORTED


def test_a_fabric_joins_what_a_switch_joins(eight: Observer) -> None:
    eight.do("info = c_nvmlGpuFabricInfo_v3_t(); info.version = nvmlGpuFabricInfo_v3")
    call = "lib.nvmlDeviceGetGpuFabricInfoV(gpu({}), ctypes.byref(info))"
    assert eight.ask(call.format(0)) == 0
    assert eight.ask("[info.state, info.status]") == [3, 0]
    assert eight.ask(call.format(8)) == NOT_SUPPORTED
    eight.do("info.version = 7")
    assert eight.ask(call.format(0)) == VERSION_MISMATCH
