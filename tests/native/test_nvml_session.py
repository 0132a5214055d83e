"""Initialising NVML, and what every one of its entries does with bad calls."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgpu import nvmlnames
from tests.native.nvml_observer import DEADLINE_S, NvmlError, Observer, observing
from tests.simulated import SimulatedNode, simulated_node

CALLS = Path(__file__).parents[2] / "shim" / "abi" / "nvml_calls.h"

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 1, 2, 3, 6
DRIVER_NOT_LOADED = 9

# These act without arguments that could be wrong.
WITHOUT_ARGUMENTS = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"}


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xH100-80G,1xRTX-4090") as node:
        yield node


@pytest.fixture
def observer(node: SimulatedNode) -> Iterator[Observer]:
    with Observer(node.env) as observer:
        yield observer


def entries() -> list[str]:
    names = re.findall(r"^NAME\((\w+)\)", nvmlnames.TABLE.read_text(), re.M)
    return [name for name in names if name not in {*WITHOUT_ARGUMENTS, "nvmlErrorString"}]


def entries_about_a_device() -> list[str]:
    return re.findall(r"nvmlReturn_t (nvml\w+)\(nvmlDevice_t\b", CALLS.read_text())


def call_all(observer: Observer, names: list[str], arguments: str) -> dict[str, int]:
    return observer.ask(f"{{name: getattr(lib, name)({arguments}) for name in {names}}}")


NULLS = ", ".join(["ctypes.c_void_p(0)"] * 6)


def test_nothing_answers_before_initialisation(observer: Observer) -> None:
    answers = call_all(observer, entries(), NULLS)
    assert len(answers) > 400
    assert set(answers.values()) == {UNINITIALIZED}


def test_null_pointers_are_refused_everywhere(observer: Observer) -> None:
    observer.do("nvmlInit()")
    answers = call_all(observer, entries(), NULLS)
    assert set(answers.values()) == {INVALID_ARGUMENT, NOT_SUPPORTED}
    assert answers["nvmlDeviceGetName"] == INVALID_ARGUMENT
    assert answers["nvmlDeviceSetMigMode"] == NOT_SUPPORTED


def test_null_pointers_beside_a_good_handle_are_refused(observer: Observer) -> None:
    observer.do("nvmlInit()")
    nulls = ", ".join(["ctypes.c_void_p(0)"] * 5)
    answers = call_all(observer, entries_about_a_device(), f"gpu(0), {nulls}")
    assert len(answers) > 100
    succeeded = {name for name, answer in answers.items() if answer == 0}
    # They need nothing but the handle.
    assert succeeded == {
        "nvmlDeviceClearCpuAffinity",
        "nvmlDeviceSetCpuAffinity",
        "nvmlDeviceValidateInforom",
    }


@pytest.mark.parametrize("handle", ["1", "0xdeadbeef", "ctypes.addressof(ctypes.c_int())"])
def test_pointers_that_are_no_handles_are_refused(observer: Observer, handle: str) -> None:
    observer.do("nvmlInit(); value = ctypes.c_ulonglong()")
    call = f"lib.nvmlDeviceGetIndex(ctypes.c_void_p({handle}), ctypes.byref(value))"
    assert observer.ask(call) == INVALID_ARGUMENT
    observer.do("data = ctypes.create_string_buffer(64)")
    wait = f"lib.nvmlEventSetWait_v2(ctypes.c_void_p({handle}), data, 0)"
    assert observer.ask(wait) == INVALID_ARGUMENT


def test_initialisation_is_counted(observer: Observer) -> None:
    observer.do("nvmlInit(); nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS); nvmlShutdown()")
    assert observer.ask("nvmlDeviceGetCount()") == 2
    observer.do("nvmlShutdown()")
    assert observer.ask("lib.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint()))") == 1
    assert observer.ask("lib.nvmlShutdown()") == UNINITIALIZED
    observer.do("nvmlInit()")
    assert observer.ask("nvmlDeviceGetCount()") == 2


def test_old_names_initialise_as_well(observer: Observer) -> None:
    assert observer.ask("lib.nvmlInit()") == 0
    assert observer.ask("lib.nvmlInitWithFlags(64)") == INVALID_ARGUMENT


def test_threads_may_come_and_go_as_they_like(observer: Observer) -> None:
    observer.do(
        """
problems = []
def come_and_go():
    try:
        for _ in range(200):
            nvmlInit()
            nvmlDeviceGetUtilizationRates(gpu(1))
            nvmlDeviceGetComputeRunningProcesses(gpu(0))
            nvmlShutdown()
    except NVMLError as error:
        problems.append(str(error))
threads = [threading.Thread(target=come_and_go) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    )
    assert observer.ask("problems") == []
    assert observer.ask("lib.nvmlShutdown()") == UNINITIALIZED


def test_a_forked_child_goes_on_with_the_session(observer: Observer) -> None:
    observer.do("nvmlInit(); parent = gpu(0)")
    observer.do(
        """
child = os.fork()
if child == 0:
    ok = nvmlDeviceGetMemoryInfo(parent).total > 0 and nvmlDeviceGetCount() == 2
    os._exit(0 if ok else 1)
status = os.waitpid(child, 0)[1]
"""
    )
    assert observer.ask("status") == 0


def test_looking_takes_no_process_slot(node: SimulatedNode, observer: Observer) -> None:
    observer.do("nvmlInit()")
    observer.ask("nvmlDeviceGetUtilizationRates(gpu(0)).gpu")
    observer.ask("len(nvmlDeviceGetComputeRunningProcesses(gpu(0)))")
    assert node.snapshot().processes == ()


def test_cuda_visible_devices_hides_nothing_from_nvml(node: SimulatedNode) -> None:
    with observing({**node.env, "CUDA_VISIBLE_DEVICES": "1"}) as observer:
        assert observer.ask("nvmlDeviceGetCount()") == 2
        assert observer.ask("nvmlDeviceGetName(gpu(0))") == "NVIDIA H100 80GB HBM3"


def test_every_error_has_a_text(observer: Observer) -> None:
    observer.do("lib.nvmlErrorString.restype = ctypes.c_char_p")
    texts = observer.ask("[lib.nvmlErrorString(code).decode() for code in range(31)]")
    assert len(set(texts)) == 31
    assert texts[15] == "GPU is lost"
    assert observer.ask("lib.nvmlErrorString(999).decode()") == "Unknown Error"
    assert observer.ask("lib.nvmlErrorString(-5).decode()") == "Unknown Error"


def test_what_is_not_implemented_is_named_on_request(node: SimulatedNode) -> None:
    with observing({**node.env, "ALIQUOT_SIM_LOG": "1"}) as observer:
        assert observer.error("nvmlDeviceGetActiveVgpus(gpu(0))") == NOT_SUPPORTED
        assert "nvmlDeviceGetActiveVgpus is not implemented" in observer.leave()


@pytest.mark.parametrize("content", [None, b"", b"no node at all", b"ALIQSIM\0" + bytes(9999)])
def test_without_a_usable_node_there_is_no_driver(
    tmp_path: Path, node: SimulatedNode, content: bytes | None
) -> None:
    path = tmp_path / "node"
    if content is not None:
        path.write_bytes(content)
    with Observer({**node.env, "ALIQUOT_SIM_STATE": str(path)}) as observer:
        assert observer.error("nvmlInit()") == DRIVER_NOT_LOADED
        assert observer.error("nvmlInit()") == DRIVER_NOT_LOADED
        said = observer.leave()
    assert said.count("simulated libnvidia-ml:") == 1
    assert str(path) in said


def test_a_missing_variable_is_named(node: SimulatedNode) -> None:
    env = {name: value for name, value in node.env.items() if name != "ALIQUOT_SIM_STATE"}
    with Observer(env) as observer, pytest.raises(NvmlError, match=str(DRIVER_NOT_LOADED)):
        observer.ask("nvmlInit()")
    with Observer(env) as observer:
        observer.error("nvmlInit()")
        assert "ALIQUOT_SIM_STATE is not set" in observer.leave()


def test_versions_are_those_of_the_node() -> None:
    with (
        simulated_node("1xT4", driver_version="535.104.05", cuda_version=12020) as node,
        observing(node.env) as observer,
    ):
        assert observer.ask("nvmlSystemGetDriverVersion()") == "535.104.05"
        assert observer.ask("nvmlSystemGetNVMLVersion()") == "12.535.104.05"
        assert observer.ask("nvmlSystemGetCudaDriverVersion()") == 12020
        assert observer.ask("nvmlSystemGetCudaDriverVersion_v2()") == 12020
        assert observer.ask("nvmlSystemGetDriverBranch().branch") == "r535_00"


def test_the_library_can_be_loaded_and_dropped_without_a_node(node: SimulatedNode) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"],
        env={**node.env, "ALIQUOT_SIM_STATE": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
