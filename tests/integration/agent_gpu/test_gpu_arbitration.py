"""What the arbiter inside the agent learns through the agent's own session with NVML."""

import subprocess
import sys

from simgpu.kernels import TEST_PTX
from tests.integration.agent_gpu.agent_program import DEADLINE_S, running
from tests.simulated import simulated_node

BUSY = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), {TEST_PTX.encode()!r}) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"aliquot_spin") == 0
# An hour of work, so that nothing depends on when this process runs again.
duration_ns = ctypes.c_uint64(3600 * 10**9)
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(duration_ns), ctypes.c_void_p))
ones = [ctypes.c_uint(1)] * 6
assert cuda.cuLaunchKernel(kernel, *ones, ctypes.c_uint(0), None, parameters, None) == 0
print("ready", flush=True)
sys.stdin.read()
"""


def test_gpu_time_per_process_is_heard_also_after_the_session_was_opened_anew() -> None:
    with simulated_node("1xA100-40G") as node:
        process = subprocess.Popen(
            [sys.executable, "-c", BUSY],
            env=node.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            uuid = node.snapshot().devices[0].uuid
            with running("sample_utilization.py", node.env, gpus=[uuid]) as program:
                pid = str(process.pid)
                for least in (0, 20):
                    # Only the first window, in which the work began, can say less than all of it.
                    program.until(
                        lambda message, least=least: (
                            message["asked"] > least and message["shares"].get(pid, 0) > 0.9
                        )
                    )
        finally:
            process.kill()
            process.communicate(timeout=DEADLINE_S)
