"""Contexts and code take memory too, and whatever lives in a context ends with it."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.capped import BLOCK, GIB, MIB, Share
from tests.native.cuda_client import OUT, Client, InOut
from tests.native.test_shim_memory import OUT_OF_MEMORY, WAYS
from tests.simulated import simulated_node

INVALID_DEVICE = 101
NO_DEVICE = 100

PTX_WITH_GLOBALS = f"""\
.version 8.0
.target sm_70
.address_size 64
.visible .global .align 4 .b8 table[{16 * MIB}];
.visible .entry nothing()
{{
    ret;
}}
"""


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    with simulated_node("2xA100-80G") as node:
        yield Share.make(node, tmp_path / "run", {0: GIB, 1: 2 * GIB})


@pytest.fixture
def client(share: Share) -> Iterator[Client]:
    with Client(share) as client:
        client.made("cuInit", 0)
        yield client


def agree(client: Client) -> int:
    """What the process holds, by the account and by the GPU, which must say the same."""
    assert client.held_bytes() == client.used_bytes()
    return client.held_bytes()


@pytest.mark.parametrize("create", ["cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v4"])
def test_a_context_is_charged_what_it_takes(client: Client, create: str) -> None:
    assert client.held_bytes() == 0
    arguments = (OUT, 0, 0, 0) if create == "cuCtxCreate_v4" else (OUT, 0, 0)
    context = client.made(create, *arguments)
    taken = agree(client)
    assert taken > 100 * MIB
    client.made("cuMemAlloc_v2", OUT, 5 * MIB)
    second = client.made(create, *arguments)
    assert agree(client) == 2 * taken + 6 * MIB
    client.made("cuCtxDestroy_v2", second)
    client.made("cuCtxDestroy_v2", context)
    assert agree(client) == 0


def test_contexts_that_do_not_fit_are_refused(client: Client) -> None:
    contexts = []
    while True:
        result, context = client.call("cuCtxCreate_v2", OUT, 0, 0)
        if result != 0:
            break
        contexts.append(context)
    assert result == OUT_OF_MEMORY
    assert agree(client) == len(contexts) * (agree(client) // len(contexts)) <= GIB
    client.made("cuCtxDestroy_v2", contexts.pop())
    client.made("cuCtxCreate_v2", OUT, 0, 0)
    assert agree(client) <= GIB


@pytest.mark.parametrize("way", WAYS)
def test_what_is_allocated_in_a_context_ends_with_it(client: Client, way: str) -> None:
    context = client.made("cuCtxCreate_v2", OUT, 0, 0)
    assert WAYS[way].take(client, 64 * MIB)[0] == 0
    client.made("cuCtxDestroy_v2", context)
    # Physical memory belongs to the process, not to a context.
    assert client.held_bytes() == (64 * MIB if way == "cuMemCreate" else 0)
    assert client.held_bytes() == client.used_bytes()


@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"])
def test_the_primary_context(client: Client, end: str) -> None:
    context = client.made("cuDevicePrimaryCtxRetain", OUT, 0)
    taken = agree(client)
    client.made("cuDevicePrimaryCtxRetain", OUT, 0)
    assert agree(client) == taken
    client.made("cuCtxSetCurrent", context)
    client.made("cuMemAlloc_v2", OUT, 8 * MIB)
    client.made("cuMemAlloc_v2", OUT, 1000)
    assert agree(client) == taken + 8 * MIB + BLOCK
    client.made(end, 0)
    if end.startswith("cuDevicePrimaryCtxRelease"):
        assert agree(client) == taken + 8 * MIB + BLOCK
        client.made(end, 0)
    assert agree(client) == 0
    client.made("cuDevicePrimaryCtxRetain", OUT, 0)
    assert agree(client) == taken


def test_contexts_of_two_devices_are_charged_to_each(client: Client) -> None:
    first = client.made("cuCtxCreate_v2", OUT, 0, 0)
    second = client.made("cuCtxCreate_v2", OUT, 0, 1)
    before = client.held_bytes(0), client.held_bytes(1)
    client.made("cuMemAlloc_v2", OUT, 8 * MIB)
    assert (client.held_bytes(0), client.held_bytes(1)) == (before[0], before[1] + 8 * MIB)
    client.made("cuCtxSetCurrent", first)
    client.made("cuMemAlloc_v2", OUT, 4 * MIB)
    assert (client.held_bytes(0), client.held_bytes(1)) == (
        before[0] + 4 * MIB,
        before[1] + 8 * MIB,
    )
    assert client.made("cuMemGetInfo_v2", OUT, OUT)[1] == GIB
    client.made("cuCtxPushCurrent_v2", second)
    assert client.made("cuMemGetInfo_v2", OUT, OUT)[1] == 2 * GIB
    for gpu in (0, 1):
        assert client.held_bytes(gpu) == client.used_bytes(gpu)


def test_a_context_attached_twice_lives_until_it_is_detached_twice(client: Client) -> None:
    context = client.made("cuCtxCreate_v2", OUT, 0, 0)
    taken = agree(client)
    assert client.made("cuCtxAttach", OUT, 0) == context
    client.made("cuCtxDetach", context)
    assert agree(client) == taken
    client.made("cuCtxDetach", context)
    assert agree(client) == 0


def test_code_is_charged_what_it_takes(client: Client) -> None:
    client.made("cuCtxCreate_v2", OUT, 0, 0)
    before = agree(client)
    module = client.made("cuModuleLoadData", OUT, PTX_WITH_GLOBALS)
    assert agree(client) == before + 16 * MIB
    client.made("cuModuleUnload", module)
    assert agree(client) == before


def test_code_of_a_library_is_charged_in_each_context(client: Client) -> None:
    context = client.made("cuCtxCreate_v2", OUT, 0, 0)
    before = agree(client)
    library = client.made("cuLibraryLoadData", OUT, PTX_WITH_GLOBALS, 0, 0, 0, 0, 0, 0)
    client.made("cuLibraryGetGlobal", OUT, OUT, library, "table")
    assert agree(client) == before + 16 * MIB
    client.made("cuLibraryUnload", library)
    assert agree(client) == before
    library = client.made("cuLibraryLoadData", OUT, PTX_WITH_GLOBALS, 0, 0, 0, 0, 0, 0)
    client.made("cuLibraryGetModule", OUT, library)
    assert agree(client) == before + 16 * MIB
    client.made("cuCtxDestroy_v2", context)
    assert agree(client) == 0


def test_code_that_does_not_fit_is_refused(client: Client) -> None:
    client.made("cuCtxCreate_v2", OUT, 0, 0)
    left = client.made("cuMemGetInfo_v2", OUT, OUT)[0]
    client.made("cuMemAlloc_v2", OUT, left - 8 * MIB)
    full = agree(client)
    assert client.call("cuModuleLoadData", OUT, PTX_WITH_GLOBALS)[0] == OUT_OF_MEMORY
    assert agree(client) == full


def test_a_neighbour_is_not_taken_for_ones_own_overhead(share: Share, tmp_path: Path) -> None:
    other = Share.make(share.node, tmp_path / "other", {0: 40 * GIB})
    with Client(other) as neighbour, Client(share) as client:
        neighbour.open()
        neighbour.made("cuMemAlloc_v2", OUT, 20 * GIB)
        client.open()
        assert client.held_bytes() == client.used_bytes()
        neighbour.made("cuMemAlloc_v2", OUT, 10 * GIB)
        assert client.made("cuMemGetInfo_v2", OUT, OUT)[0] == GIB - client.held_bytes()


def test_processes_share_one_cap(share: Share) -> None:
    with Client(share) as one, Client(share) as other:
        one.open()
        left = one.made("cuMemGetInfo_v2", OUT, OUT)[0]
        address = one.made("cuMemAlloc_v2", OUT, left - 10 * MIB)
        other.made("cuInit", 0)
        assert other.call("cuCtxCreate_v2", OUT, 0, 0)[0] == OUT_OF_MEMORY
        one.made("cuMemFree_v2", address)
        other.made("cuCtxCreate_v2", OUT, 0, 0)
        assert one.held_bytes() == one.used_bytes()
        assert other.held_bytes() == other.used_bytes()
        assert (
            other.call("cuMemAlloc_v2", OUT, left - other.held_bytes() + BLOCK)[0] == OUT_OF_MEMORY
        )
        other.made("cuMemAlloc_v2", OUT, left - other.held_bytes() - BLOCK)
        assert one.call("cuMemAlloc_v2", OUT, 4 * MIB)[0] == OUT_OF_MEMORY


def test_without_limits_nothing_works_and_one_line_says_why(share: Share) -> None:
    (share.directory / "memory" / "limits").unlink()
    done = share.run(["python3", "-S", "-c", FAILS_CLOSED])
    assert done.stdout == f"cuInit {NO_DEVICE}\ncount 3\ncontext {NO_DEVICE}\nnvml 0 gpus 0\n"
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("aliquot: ")
    assert "limits" in done.stderr


FAILS_CLOSED = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
print("cuInit", cuda.cuInit(0))
print("count", cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
print("context", cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))
nvml = ctypes.CDLL("libnvidia-ml.so.1")
count = ctypes.c_uint(99)
nvml.nvmlInit_v2()
print("nvml", nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "gpus", count.value)
"""


@pytest.mark.parametrize("variable", ["", "0", "1", "0,1", "1,0", "GPU", "-1", "2", "0,2,1", "0,0"])
def test_visible_devices_choose_among_the_containers_own(tmp_path: Path, variable: str) -> None:
    with simulated_node("4xA100-80G") as node:
        own = Share.make(node, tmp_path / "own", {2: GIB, 1: 2 * GIB})
        uuids = [device.uuid for device in node.snapshot().devices]
        expected = {"": [], "0": [2], "1": [1], "0,1": [2, 1], "1,0": [1, 2], "GPU": [1], "-1": []}
        expected |= {"2": [], "0,2,1": [2], "0,0": [2]}
        setting = uuids[1][:12] if variable == "GPU" else variable
        with Client(own, CUDA_VISIBLE_DEVICES=setting) as client:
            result = client.call("cuInit", 0)[0]
            seen = []
            for ordinal in range(client.call("cuDeviceGetCount", OUT)[1] if result == 0 else 0):
                digits = client.made("cuDeviceGetUuid_v2", InOut(bytes(16)), ordinal)
                seen.append(f"GPU-{UUID(digits)}")
        assert seen == [uuids[gpu] for gpu in expected[variable]]
        assert (result == NO_DEVICE) == (not seen)
