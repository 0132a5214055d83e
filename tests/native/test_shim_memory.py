"""Every way of taking device memory is charged what it takes, is refused at the cap, gives back."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.capped import BLOCK, GIB, MIB, Share
from tests.native.cuda_client import OUT, ByValue, Client, InOut
from tests.patience import eventually
from tests.simulated import simulated_node

OUT_OF_MEMORY = 2
SHARED = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
FLOAT = 0x20
SPARSE = 0x40


def allocation(handle_types: int = 0, ordinal: int = 0) -> bytes:
    """CUmemAllocationProp: pinned memory on a device."""
    return struct.pack("IIIiQ8x", 1, handle_types, 1, ordinal, 0)


def pool_properties(ordinal: int = 0) -> bytes:
    """CUmemPoolProps: pinned memory on a device."""
    return struct.pack("IIIiQQ56x", 1, 0, 1, ordinal, 0, 0)


def array3d(width: int, height: int, depth: int = 0, flags: int = 0) -> bytes:
    """CUDA_ARRAY3D_DESCRIPTOR: floats, one channel."""
    return struct.pack("QQQIII4x", width, height, depth, FLOAT, 1, flags)


def floats(bytes_: int) -> tuple[int, int]:
    """Width and height of an array of so many bytes."""
    return 16384, bytes_ // (16384 * 4)


@dataclass(frozen=True)
class Way:
    """One way of taking memory: how, how to give it back, and whether the GPU counts it too."""

    take: Callable[[Client, int], tuple[int, ...]]
    give: Callable[[Client, int], object]
    is_on_gpu: bool = True


def _pitch(client: Client, bytes_: int) -> tuple[int, ...]:
    result, address, pitch = client.call("cuMemAllocPitch_v2", OUT, OUT, 4000, bytes_ // 4096, 4)
    assert result != 0 or pitch == 4096
    return result, address


def _external(client: Client, bytes_: int) -> tuple[int, ...]:
    # On a simulated GPU any file can be another interface's memory.
    (file,) = client.call("memfd_create", "external", 0)
    client.made("ftruncate", file, bytes_)
    return client.call(
        "cuImportExternalMemory", OUT, struct.pack("I4xi12xQI68x", 1, file, bytes_, 0)
    )


def _free_async(client: Client, address: int) -> None:
    client.made("cuMemFreeAsync", address, 0)
    client.made("cuStreamSynchronize", 0)


def _from_pool(client: Client, bytes_: int) -> tuple[int, ...]:
    pool = client.made("cuMemPoolCreate", OUT, pool_properties())
    result, address = client.call("cuMemAllocFromPoolAsync", OUT, bytes_, pool, 0)
    # It lives on until its last allocation is freed.
    client.made("cuMemPoolDestroy", pool)
    return result, address


WAYS = {
    "cuMemAlloc": Way(
        lambda client, bytes_: client.call("cuMemAlloc_v2", OUT, bytes_),
        lambda client, address: client.made("cuMemFree_v2", address),
    ),
    "cuMemAllocPitch": Way(_pitch, lambda client, address: client.made("cuMemFree_v2", address)),
    "cuMemAllocManaged": Way(
        lambda client, bytes_: client.call("cuMemAllocManaged", OUT, bytes_, 1),
        lambda client, address: client.made("cuMemFree_v2", address),
        # Charged in full; the simulated GPU holds only what is prefetched to it.
        is_on_gpu=False,
    ),
    "cuMemAllocAsync": Way(
        lambda client, bytes_: client.call("cuMemAllocAsync", OUT, bytes_, 0), _free_async
    ),
    "cuMemAllocAsync_ptsz": Way(
        lambda client, bytes_: client.call("cuMemAllocAsync_ptsz", OUT, bytes_, 0),
        lambda client, address: (
            client.made("cuMemFreeAsync_ptsz", address, 0),
            client.made("cuStreamSynchronize_ptsz", 0),
        ),
    ),
    "cuMemAllocAsync, cuMemFree": Way(
        lambda client, bytes_: client.call("cuMemAllocAsync", OUT, bytes_, 0),
        lambda client, address: (
            client.made("cuMemFree_v2", address),
            client.made("cuCtxSynchronize"),
        ),
    ),
    "cuMemAllocFromPoolAsync": Way(_from_pool, _free_async),
    "cuMemCreate": Way(
        lambda client, bytes_: client.call("cuMemCreate", OUT, bytes_, allocation(), 0),
        lambda client, handle: client.made("cuMemRelease", handle),
    ),
    "cuArrayCreate": Way(
        lambda client, bytes_: client.call(
            "cuArrayCreate_v2", OUT, struct.pack("QQII", *floats(bytes_), FLOAT, 1)
        ),
        lambda client, array: client.made("cuArrayDestroy", array),
    ),
    "cuArray3DCreate": Way(
        lambda client, bytes_: client.call(
            "cuArray3DCreate_v2", OUT, array3d(1024, 16, bytes_ // (1024 * 16 * 4))
        ),
        lambda client, array: client.made("cuArrayDestroy", array),
    ),
    "cuMipmappedArrayCreate": Way(
        lambda client, bytes_: client.call(
            "cuMipmappedArrayCreate", OUT, array3d(*floats(bytes_)), 1
        ),
        lambda client, array: client.made("cuMipmappedArrayDestroy", array),
    ),
    "cuImportExternalMemory": Way(
        _external,
        lambda client, memory: client.made("cuDestroyExternalMemory", memory),
        is_on_gpu=False,
    ),
}


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    with simulated_node("2xA100-80G") as node:
        yield Share.make(node, tmp_path / "run", {0: GIB})


@pytest.fixture
def client(share: Share) -> Iterator[Client]:
    with Client(share) as client:
        client.open()
        yield client


@pytest.mark.parametrize("way", WAYS)
def test_is_charged_and_given_back(client: Client, way: str) -> None:
    before = client.held_bytes()
    assert before == client.used_bytes()
    result, token = WAYS[way].take(client, 64 * MIB)
    assert result == 0
    assert client.held_bytes() - before == 64 * MIB
    if WAYS[way].is_on_gpu:
        assert client.held_bytes() == client.used_bytes()
    WAYS[way].give(client, token)
    assert client.held_bytes() == before
    assert client.used_bytes() == before


@pytest.mark.parametrize("way", WAYS)
def test_is_refused_at_the_cap_with_the_right_error(client: Client, way: str) -> None:
    before = client.held_bytes()
    left = client.made("cuMemGetInfo_v2", OUT, OUT)[0]
    if WAYS[way].take is not _from_pool:
        assert WAYS[way].take(client, left + BLOCK)[0] == OUT_OF_MEMORY
        assert client.held_bytes() == client.used_bytes() == before
    # Up to the cap it may go, in what pools grow by at the coarsest.
    result, token = WAYS[way].take(client, left // (32 * MIB) * (32 * MIB))
    assert result == 0
    full = client.held_bytes()
    assert full <= GIB
    assert WAYS[way].take(client, 64 * MIB)[0] == OUT_OF_MEMORY
    assert client.held_bytes() == full
    WAYS[way].give(client, token)
    assert client.held_bytes() == client.used_bytes() == before


def _graph(client: Client, bytes_: int) -> tuple[int, int]:
    """An executable graph with one allocation node, and the node's address."""
    graph = client.made("cuGraphCreate", OUT, 0)
    node = InOut(pool_properties() + struct.pack("QQQQ", 0, 0, bytes_, 0))
    _, filled = client.made("cuGraphAddMemAllocNode", OUT, graph, 0, 0, node)
    (address,) = struct.unpack_from("Q", bytes.fromhex(filled), len(pool_properties()) + 24)
    return client.made("cuGraphInstantiateWithFlags", OUT, graph, 0), address


@pytest.mark.parametrize("launch", ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload"])
def test_a_graphs_allocation_is_charged_at_its_launch(client: Client, launch: str) -> None:
    before = client.held_bytes()
    executable, _ = _graph(client, 2 * GIB)
    assert client.held_bytes() == client.used_bytes() == before
    assert client.call(launch, executable, 0) == (OUT_OF_MEMORY,)
    assert client.held_bytes() == client.used_bytes() == before
    executable, address = _graph(client, 64 * MIB)
    client.made(launch, executable, 0)
    assert client.held_bytes() == client.used_bytes()
    if launch != "cuGraphUpload":
        assert client.held_bytes() == before + 64 * MIB
        client.made("cuMemFree_v2", address)
    client.made("cuGraphExecDestroy", executable)
    client.made("cuDeviceGraphMemTrim", 0)
    assert client.held_bytes() == client.used_bytes() == before


def test_a_captured_allocation_is_charged_at_its_launch(client: Client) -> None:
    before = client.held_bytes()
    stream = client.made("cuStreamCreate", OUT, 0)
    client.made("cuStreamBeginCapture_v2", stream, 2)
    address = client.made("cuMemAllocAsync", OUT, 64 * MIB, stream)
    client.made("cuMemFreeAsync", address, stream)
    graph = client.made("cuStreamEndCapture", stream, OUT)
    executable = client.made("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert client.held_bytes() == client.used_bytes() == before
    for _ in range(3):
        client.made("cuGraphLaunch", executable, stream)
        client.made("cuStreamSynchronize", stream)
    client.made("cuGraphExecDestroy", executable)
    # The driver gives the memory back when its timeline gets to the free, in a thread of its own.
    eventually(lambda: client.used_bytes() == before)
    client.made("cuDeviceGraphMemTrim", 0)
    assert client.held_bytes() == before


def test_small_allocations_share_blocks(client: Client) -> None:
    before = client.held_bytes()
    addresses = [client.made("cuMemAlloc_v2", OUT, 1000) for _ in range(50)]
    assert client.held_bytes() == client.used_bytes() == before + BLOCK
    for address in addresses:
        client.made("cuMemFree_v2", address)
    assert client.held_bytes() == client.used_bytes() == before


def test_what_is_freed_twice_or_was_never_allocated_changes_nothing(client: Client) -> None:
    address = client.made("cuMemAlloc_v2", OUT, 4 * MIB)
    kept = client.made("cuMemAlloc_v2", OUT, 1000)
    held = client.held_bytes()
    assert client.call("cuMemFree_v2", address + 512)[0] != 0
    assert client.call("cuMemFree_v2", kept + 512)[0] != 0
    assert client.held_bytes() == held
    client.made("cuMemFree_v2", address)
    assert client.call("cuMemFree_v2", address)[0] != 0
    assert client.held_bytes() == client.used_bytes() == held - 4 * MIB


def test_physical_memory_lives_as_long_as_anything_holds_it(client: Client) -> None:
    before = client.held_bytes()
    handle = client.made("cuMemCreate", OUT, 4 * MIB, allocation(), 0)
    address = client.made("cuMemAddressReserve", OUT, 8 * MIB, 0, 0, 0)
    client.made("cuMemMap", address, 4 * MIB, 0, handle, 0)
    again = client.made("cuMemRetainAllocationHandle", OUT, address)
    client.made("cuMemRelease", handle)
    client.made("cuMemRelease", again)
    assert client.held_bytes() == client.used_bytes() == before + 4 * MIB
    again = client.made("cuMemRetainAllocationHandle", OUT, address)
    client.made("cuMemMap", address + 4 * MIB, 4 * MIB, 0, again, 0)
    client.made("cuMemUnmap", address, 4 * MIB)
    assert client.held_bytes() == client.used_bytes() == before + 4 * MIB
    client.made("cuMemRelease", again)
    assert client.held_bytes() == client.used_bytes() == before + 4 * MIB
    client.made("cuMemUnmap", address + 4 * MIB, 4 * MIB)
    assert client.held_bytes() == client.used_bytes() == before


def test_several_mappings_end_with_one_call(client: Client) -> None:
    before = client.held_bytes()
    address = client.made("cuMemAddressReserve", OUT, 8 * MIB, 0, 0, 0)
    for place in range(0, 8 * MIB, BLOCK):
        handle = client.made("cuMemCreate", OUT, BLOCK, allocation(), 0)
        client.made("cuMemMap", address + place, BLOCK, 0, handle, 0)
        client.made("cuMemRelease", handle)
    assert client.held_bytes() == client.used_bytes() == before + 8 * MIB
    client.made("cuMemUnmap", address, 8 * MIB)
    assert client.held_bytes() == client.used_bytes() == before


def test_memory_of_the_host_is_not_charged(client: Client) -> None:
    before = client.held_bytes()
    client.made("cuMemAllocHost_v2", OUT, 2 * GIB)
    client.made("cuMemHostAlloc", OUT, 2 * GIB, 0)
    on_host = struct.pack("IIIiQ8x", 1, 0, 2, 0, 0)
    result, _ = client.call("cuMemCreate", OUT, 2 * GIB, on_host, 0)
    assert result in (0, 801)  # or the driver does not know how
    assert client.held_bytes() == before


def test_imports_are_not_charged_again(share: Share) -> None:
    with Client(share) as client:
        client.open()
        handle = client.made("cuMemCreate", OUT, 8 * MIB, allocation(SHARED), 0)
        held = client.held_bytes()
        descriptor = client.made("cuMemExportToShareableHandle", OUT, handle, SHARED, 0)
        copy = client.made("cuMemImportFromShareableHandle", OUT, descriptor & 0xFFFFFFFF, SHARED)
        assert client.held_bytes() == held
        client.made("cuMemRelease", copy)
        assert client.held_bytes() == held
        client.made("cuMemRelease", handle)
        assert client.held_bytes() == held - 8 * MIB


def test_memory_of_another_process_of_the_container_is_charged_once(share: Share) -> None:
    with Client(share) as owner, Client(share) as guest:
        owner.open()
        guest.open()
        address = owner.made("cuMemAlloc_v2", OUT, 64 * MIB)
        handle = bytes.fromhex(owner.made("cuIpcGetMemHandle", InOut(bytes(64)), address))
        held = owner.held_bytes(), guest.held_bytes()
        opened = guest.made("cuIpcOpenMemHandle_v2", OUT, ByValue(handle), 1)
        assert (owner.held_bytes(), guest.held_bytes()) == held
        guest.made("cuIpcCloseMemHandle", opened)
        assert (owner.held_bytes(), guest.held_bytes()) == held
        owner.made("cuMemFree_v2", address)
        assert (owner.held_bytes(), guest.held_bytes()) == (held[0] - 64 * MIB, held[1])


def test_a_multicast_binding_keeps_what_is_bound(share: Share, tmp_path: Path) -> None:
    with simulated_node("2xH100-80G") as node:
        both = Share.make(node, tmp_path / "both", {0: 2 * GIB, 1: 2 * GIB})
        with Client(both) as client:
            client.open()
            before = client.held_bytes()
            multicast = client.made("cuMulticastCreate", OUT, struct.pack("I4xQQQ", 2, BLOCK, 0, 0))
            for ordinal in (0, 1):
                client.made("cuMulticastAddDevice", multicast, ordinal)
            handle = client.made("cuMemCreate", OUT, BLOCK, allocation(), 0)
            client.made("cuMulticastBindMem", multicast, 0, handle, 0, BLOCK, 0)
            client.made("cuMemRelease", handle)
            assert client.held_bytes() == client.used_bytes() == before + BLOCK
            client.made("cuMulticastUnbind", multicast, 0, 0, BLOCK)
            assert client.held_bytes() == client.used_bytes() == before


def tile(array: int, operation: int, handle: int, column: int) -> bytes:
    """CUarrayMapInfo: one tile of an array of floats, mapped (1) or unmapped (2)."""
    place = struct.pack("8I", 0, 0, column * 128, 0, 0, 128, 128, 1)
    return (
        struct.pack("I4xQI4x", 0, array, 0)
        + place
        + struct.pack("IIQQII8x", operation, 0, handle, 0, 1, 0)
    )


def test_sparse_arrays_are_charged_for_what_is_mapped_into_them(client: Client) -> None:
    before = client.held_bytes()
    array = client.made("cuArray3DCreate_v2", OUT, array3d(4096, 4096, 0, SPARSE))
    assert client.held_bytes() == client.used_bytes() == before
    for column in range(3):
        handle = client.made("cuMemCreate", OUT, BLOCK, allocation(), 0)
        client.made("cuMemMapArrayAsync", tile(array, 1, handle, column), 1, 0)
        client.made("cuMemRelease", handle)
    # The array alone holds them now.
    assert client.held_bytes() == before + 3 * BLOCK
    client.made("cuMemMapArrayAsync", tile(array, 2, 0, 1), 1, 0)
    assert client.held_bytes() == before + 2 * BLOCK
    client.made("cuArrayDestroy", array)
    assert client.held_bytes() == before
