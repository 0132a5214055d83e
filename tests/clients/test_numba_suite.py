"""The driver tests that numba-cuda brings, on a simulated GPU."""

import re
import subprocess
import sys

import pytest

from tests.clients.client_programs import need, need_library
from tests.simulated import simulated_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SUITE = "numba.cuda.tests.cudadrv"

# They look at what a kernel has computed, and kernels are not computed here ...
NEED_RESULTS = {
    "test_context_stack": ["test_cudajit_in_attached_primary_context"],
    "test_cuda_array_slicing": [
        "test_array_assign_all",
        "test_array_assign_column",
        "test_array_assign_deep_subarray",
        "test_array_assign_row",
        "test_array_assign_subarray",
        "test_broadcast",
        "test_rank",
        "test_scalar",
        "test_strides",
    ],
    "test_cuda_devicerecord": [
        "test_structured_array2",
        "test_structured_array3",
        "test_structured_array4",
    ],
    "test_cuda_driver": [
        "test_cuda_cache_config",
        "test_cuda_core_graph_builder_launch_user_facing",
        "test_cuda_core_stream_launch_user_facing",
        "test_cuda_core_stream_operations",
        "test_cuda_driver_basic",
        "test_cuda_driver_stream_operations",
        "test_cuda_set_shared_memory_carveout",
    ],
    "test_cuda_ndarray": [
        "test_devicearray_transpose_T",
        "test_devicearray_transpose_ok",
        "test_recarray",
    ],
    "test_linker": ["test_linking_cu", "test_linking_eager_compile", "test_linking_lazy_compile"],
    "test_managed_alloc": ["test_managed_array_attach_global", "test_managed_array_attach_host"],
    "test_module_callbacks": ["test_decldevice_arg", "test_jitarg"],
}
# ... or at the registers that a compiler would have used, or at what is not installed.
NEED_COMPILER = {"test_linker": ["test_set_registers_no_max"]}
NEED_CUPY = {
    "test_cuda_ndarray": ["test_kernel_with_buffer", "test_kernel_with_strided_memory_view"]
}


def failures(printed: str) -> set[str]:
    """module.test of everything that did not pass."""
    found = re.findall(r"^(?:FAIL|ERROR): (\w+) \(([\w.]+)\)", printed, re.M)
    return {f"{path.removeprefix(SUITE + '.').split('.')[0]}.{test}" for test, path in found}


def test_numbas_driver_tests_pass() -> None:
    need("numba", "numba_cuda", "filecheck", "pytest")
    need_library("libnvrtc.so")
    need_library("libnvvm.so")
    with simulated_node("2xA100-80G") as node:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "numba.runtests", "-v", SUITE],
            env=node.env,
            cwd=node.path.parent,
            capture_output=True,
            text=True,
            timeout=1100,
        )
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.M)
    assert ran, done.stderr
    assert int(ran[1]) > 250
    excused = {
        f"{module}.{test}"
        for table in (NEED_RESULTS, NEED_COMPILER, NEED_CUPY)
        for module, tests in table.items()
        for test in tests
    }
    assert failures(done.stderr) - excused == set(), done.stderr
