"""Whether the CUDA driver and NVML answer, asked in a process of its own.

A broken driver may hang or crash whoever loads it, and that shall not be the doctor.
"""

import subprocess
import sys
from collections.abc import Iterator

import msgspec

from aliquot.doctor.finding import Finding, fail, good, warn

__all__ = ["Answer", "check_driver", "judge_driver"]

DEADLINE_S = 30.0

_QUESTION = """
import ctypes, json, sys
said = {}
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    version, count = ctypes.c_int(), ctypes.c_int()
    said["cuda_code"] = cuda.cuInit(0)
    if not said["cuda_code"]:
        cuda.cuDriverGetVersion(ctypes.byref(version))
        said["cuda_code"] = cuda.cuDeviceGetCount(ctypes.byref(count))
        said["cuda_version"], said["cuda_gpus"] = version.value, count.value
except OSError as error:
    said["cuda_missing"] = str(error)
try:
    import pynvml
    pynvml.nvmlInit()
    said["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
    said["nvml_gpus"] = pynvml.nvmlDeviceGetCount()
except Exception as error:
    said["nvml_missing"] = str(error)
json.dump(said, sys.stdout)
"""


class Answer(msgspec.Struct, frozen=True):
    """What the process said; the defaults are what one says that finds nothing."""

    cuda_missing: str = ""
    cuda_code: int = 0
    cuda_version: int = 0
    cuda_gpus: int = 0
    nvml_missing: str = ""
    driver: str = ""
    nvml_gpus: int = 0


def check_driver() -> Iterator[Finding]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _QUESTION], capture_output=True, timeout=DEADLINE_S
        )
        answer = msgspec.json.decode(done.stdout, type=Answer)
    except subprocess.TimeoutExpired:
        yield fail(
            "driver",
            f"the driver has not answered for {DEADLINE_S:.0f} s",
            "see the kernel's log (dmesg | grep -i nvrm); reset the GPU, or reboot the node",
        )
    except msgspec.DecodeError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        yield fail(
            "driver",
            f"a process that loads the driver ends with {done.returncode}: {' '.join(last)}",
            "reinstall the driver; its libraries and its kernel module must be of one version",
        )
    else:
        yield from judge_driver(answer)


def judge_driver(answer: Answer) -> Iterator[Finding]:
    if answer.cuda_missing:
        yield fail(
            "cuda",
            f"the CUDA driver cannot be loaded: {answer.cuda_missing}",
            "install NVIDIA's driver, or simulate GPUs: aliquot sim run --gpus 2xA100-80G -- ...",
        )
    elif answer.cuda_code:
        yield fail(
            "cuda",
            f"the CUDA driver answers error {answer.cuda_code}",
            "inside a container with limits, see what the shim says on standard error; outside, "
            "see the kernel's log (dmesg | grep -i nvrm)",
        )
    else:
        version = f"{answer.cuda_version // 1000}.{answer.cuda_version % 1000 // 10}"
        yield good("cuda", f"CUDA {version}, {_gpus(answer.cuda_gpus)}")
    if answer.nvml_missing:
        yield fail(
            "nvml",
            f"NVML does not answer: {answer.nvml_missing}",
            "install the driver's libnvidia-ml.so.1; in a container, let the runtime bring it",
        )
        return
    yield good("nvml", f"driver {answer.driver}, {_gpus(answer.nvml_gpus)}")
    if not answer.cuda_missing and not answer.cuda_code and answer.cuda_gpus != answer.nvml_gpus:
        yield warn(
            "nvml",
            f"CUDA shows {_gpus(answer.cuda_gpus)}, NVML {_gpus(answer.nvml_gpus)}",
            "unset CUDA_VISIBLE_DEVICES if it is set; GPUs in MIG mode count differently as well",
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
