"""What NVML says a simulated device is, and how it is found and reached."""

from collections.abc import Iterator

import pytest

from simgpu.models import parse_spec
from tests.native.nvml_observer import Observer, observing
from tests.simulated import simulated_node

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 2, 3, 6, 7
VERSION_MISMATCH = 25

SPEC = "2xA100-80G,1xL4,1xRTX-4090,2xH100-80G"


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    """Nothing here changes the node, so one is enough."""
    with simulated_node(SPEC) as node, observing(node.env) as observer:
        yield observer


def test_identity_is_that_of_the_profile(observer: Observer) -> None:
    gpus = parse_spec(SPEC)
    assert observer.ask("nvmlDeviceGetCount()") == len(gpus)
    for index, gpu in enumerate(gpus):
        assert observer.ask(f"nvmlDeviceGetName(gpu({index}))") == gpu.name
        assert observer.ask(f"nvmlDeviceGetUUID(gpu({index}))") == gpu.uuid
        assert observer.ask(f"nvmlDeviceGetIndex(gpu({index}))") == index
        assert observer.ask(f"nvmlDeviceGetMinorNumber(gpu({index}))") == index
        assert observer.ask(f"nvmlDeviceGetMemoryInfo(gpu({index})).total") == gpu.memory_bytes
        assert observer.ask(f"nvmlDeviceGetArchitecture(gpu({index}))") == gpu.architecture
        assert observer.ask(f"nvmlDeviceGetBrand(gpu({index}))") == gpu.brand
        capability = [gpu.compute_major, gpu.compute_minor]
        assert observer.ask(f"nvmlDeviceGetCudaComputeCapability(gpu({index}))") == capability
        assert observer.ask(f"nvmlDeviceGetMemoryBusWidth(gpu({index}))") == gpu.memory_bus_bits


def test_cores_tell_the_number_of_multiprocessors(observer: Observer) -> None:
    cores = observer.ask("[nvmlDeviceGetNumGpuCores(gpu(index)) for index in range(6)]")
    assert cores == [108 * 64] * 2 + [58 * 128, 128 * 128] + [132 * 128] * 2


def test_a_device_is_found_by_everything_that_names_it(observer: Observer) -> None:
    for index in range(6):
        observer.do(f"handle = gpu({index})")
        for way in (
            "nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(handle))",
            "nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busId)",
            "nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busIdLegacy)",
            "nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busId[9:])",
            "nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busId[:-2].lower())",
        ):
            assert observer.ask(f"nvmlDeviceGetIndex({way})") == index, way


def test_a_binary_uuid_finds_its_device(observer: Observer) -> None:
    observer.do(
        """
import uuid
class Wanted(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("type", ctypes.c_uint), ("value", ctypes.c_char * 41)]
wanted = Wanted()
wanted.version = ctypes.sizeof(Wanted) | 1 << 24
found = ctypes.c_void_p()
def find(kind, value):
    wanted.type, wanted.value = kind, value
    return lib.nvmlDeviceGetHandleByUUIDV(ctypes.byref(wanted), ctypes.byref(found))
text = nvmlDeviceGetUUID(gpu(3))
"""
    )
    assert observer.ask("find(1, text.encode())") == 0
    assert observer.ask("nvmlDeviceGetIndex(ctypes.cast(found, c_nvmlDevice_t))") == 3
    observer.do("ctypes.memmove(ctypes.byref(wanted, 8), uuid.UUID(text[4:]).bytes, 16)")
    observer.do("wanted.type = 2; found.value = 0")
    assert (
        observer.ask("lib.nvmlDeviceGetHandleByUUIDV(ctypes.byref(wanted), ctypes.byref(found))")
        == 0
    )
    assert observer.ask("nvmlDeviceGetIndex(ctypes.cast(found, c_nvmlDevice_t))") == 3
    assert observer.ask("find(3, b'')") == INVALID_ARGUMENT
    observer.do("wanted.version = 1")
    assert observer.ask("find(1, text.encode())") == VERSION_MISMATCH


def test_a_serial_number_finds_its_device_unless_its_kind_has_none(observer: Observer) -> None:
    numbers = observer.ask("[nvmlDeviceGetSerial(gpu(index)) for index in (0, 1, 2, 4, 5)]")
    assert len(set(numbers)) == 5
    index = observer.ask(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleBySerial({numbers[4]!r}))")
    assert index == 5
    assert observer.error("nvmlDeviceGetSerial(gpu(3))") == NOT_SUPPORTED
    assert observer.error("nvmlDeviceGetHandleBySerial('0')") == NOT_FOUND


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("nvmlDeviceGetHandleByIndex(6)", INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByUUID('GPU-00000000-0000-0000-0000-000000000000')", NOT_FOUND),
        ("nvmlDeviceGetHandleByUUID('MIG-00000000-0000-0000-0000-000000000000')", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId('00000000:FF:00.0')", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId('00000000:10:00.1')", INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByPciBusId('nonsense')", INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByPciBusId('00000000:10:00.0 and more')", INVALID_ARGUMENT),
    ],
)
def test_what_is_not_there_is_not_found(observer: Observer, call: str, answer: int) -> None:
    assert observer.error(call) == answer


def test_a_text_that_does_not_fit_is_refused(observer: Observer) -> None:
    observer.do("text = ctypes.create_string_buffer(b'#' * 31, 32); length = len('NVIDIA L4')")
    assert observer.ask("lib.nvmlDeviceGetName(gpu(2), text, length)") == INSUFFICIENT_SIZE
    assert observer.ask("text.value.decode()") == "#" * 31
    assert observer.ask("lib.nvmlDeviceGetName(gpu(2), text, length + 1)") == 0
    assert observer.ask("text.value.decode()") == "NVIDIA L4"


def test_old_pci_entries_write_no_further_than_their_struct_reached(observer: Observer) -> None:
    """Programs of that time have only this much room on their stack."""
    observer.do("room = (ctypes.c_ubyte * 80)(*[0xAA] * 80)")
    for entry, written in (("", 32), ("_v2", 36), ("_v3", 68)):
        observer.do("ctypes.memset(room, 0xAA, 80)")
        assert observer.ask(f"lib.nvmlDeviceGetPciInfo{entry}(gpu(1), room)") == 0
        assert observer.ask("bytes(room[:12]).decode()") == "0000:18:00.0"
        assert observer.ask(f"set(room[{written}:]) == {{0xAA}} and room[{written - 1}] != 0xAA")


def test_the_slot_is_described(observer: Observer) -> None:
    observer.do("info = nvmlPciInfoExt_v1_t(); info.version = nvmlPciInfoExt_v1")
    observer.do("nvmlDeviceGetPciInfoExt(gpu(4), ctypes.byref(info))")
    assert observer.ask("[info.bus, info.domain, hex(info.pciDeviceId)]") == [0x30, 0, "0x233010de"]
    assert observer.ask("nvmlDeviceGetMaxPcieLinkGeneration(gpu(4))") == 5
    assert observer.ask("nvmlDeviceGetCurrPcieLinkWidth(gpu(4))") == 16
    assert observer.ask("nvmlDeviceGetPcieSpeed(gpu(4))") == 32000
    assert observer.ask("nvmlDeviceGetPcieThroughput(gpu(4), NVML_PCIE_UTIL_RX_BYTES)") == 0
    assert observer.error("nvmlDeviceGetPcieThroughput(gpu(4), 7)") == INVALID_ARGUMENT


def test_mig_is_off_where_there_is_mig(observer: Observer) -> None:
    assert observer.ask("nvmlDeviceGetMigMode(gpu(0))") == [0, 0]
    assert observer.ask("nvmlDeviceGetMigMode(gpu(5))") == [0, 0]
    assert observer.error("nvmlDeviceGetMigMode(gpu(2))") == NOT_SUPPORTED
    assert observer.error("nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)") == NOT_FOUND
    assert observer.ask("nvmlDeviceIsMigDeviceHandle(gpu(0)).value") == 0


def test_versioned_structs_are_checked(observer: Observer) -> None:
    observer.do("memory = c_nvmlMemory_v2_t()")
    call = "lib.nvmlDeviceGetMemoryInfo_v2(gpu(0), ctypes.byref(memory))"
    assert observer.ask(call) == VERSION_MISMATCH
    observer.do("memory.version = nvmlMemory_v2")
    assert observer.ask(call) == 0
    assert observer.ask("memory.total == memory.free + memory.used + memory.reserved")


def test_fields_are_read_in_bulk(observer: Observer) -> None:
    observer.do(
        """
wanted = [NVML_FI_DEV_NVLINK_LINK_COUNT, NVML_FI_DEV_POWER_CURRENT_LIMIT, NVML_FI_DEV_ECC_CURRENT,
          NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
          NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, NVML_FI_DEV_RETIRED_PENDING,
          NVML_FI_DEV_REMAPPED_UNC, NVML_FI_MAX - 1,
          (NVML_FI_DEV_NVLINK_GET_STATE, 3), (NVML_FI_DEV_NVLINK_GET_STATE, 30)]
def read(index):
    fields = nvmlDeviceGetFieldValues(gpu(index), wanted)
    return [[field.nvmlReturn, field.value.uiVal] for field in fields]
"""
    )
    assert observer.ask("read(0)") == [
        [0, 12],
        [0, 400_000],
        [0, 1],
        [0, 35],
        [0, 0],
        [0, 25000],
        [NOT_SUPPORTED, 0],
        [0, 0],
        [NOT_SUPPORTED, 0],
        [0, 1],
        [INVALID_ARGUMENT, 0],
    ]
    answers = [answer for answer, _ in observer.ask("read(3)")]
    assert answers == [0, 0, *[NOT_SUPPORTED] * 9]


def test_clocks_to_choose_from_are_listed(observer: Observer) -> None:
    assert observer.ask("nvmlDeviceGetSupportedMemoryClocks(gpu(0))") == [1593]
    clocks = observer.ask("nvmlDeviceGetSupportedGraphicsClocks(gpu(0), 1593)")
    assert clocks[0] == 1410
    assert clocks == sorted(clocks, reverse=True)
    assert observer.error("nvmlDeviceGetSupportedGraphicsClocks(gpu(0), 5)") == NOT_FOUND


def test_boards_have_what_their_kind_has(observer: Observer) -> None:
    assert observer.ask("nvmlDeviceGetEccMode(gpu(0))") == [1, 1]
    assert observer.error("nvmlDeviceGetEccMode(gpu(3))") == NOT_SUPPORTED
    assert observer.ask("nvmlDeviceGetNumFans(gpu(3))") == 2
    assert observer.error("nvmlDeviceGetFanSpeed(gpu(0))") == NOT_SUPPORTED
    assert observer.ask("nvmlDeviceGetPersistenceMode(gpu(0))") == 1
    assert observer.ask("nvmlDeviceGetComputeMode(gpu(0))") == 0
    assert observer.ask("nvmlUnitGetCount()") == 0
