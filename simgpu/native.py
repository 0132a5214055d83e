"""What is built from the C in this folder: the simulated driver, its NVML, Python's binding."""

from nativebuild import Artifact, Binding, Library

_CORE = "simgpu/src/core"


def _library(name: str, folder: str) -> Library:
    return Library(
        name=name,
        target=f"simgpu/lib/{name}.so.1",
        sources=(f"{_CORE}/*.c", f"{folder}/*.c"),
        includes=(_CORE, folder, "shim/abi"),
        # Bound to itself: a preloaded library must not catch what the driver calls inside.
        link=(
            f"-Wl,-soname,{name}.so.1",
            "-Wl,-Bsymbolic",
            f"-Wl,--version-script={folder}/exports.map",
        ),
        inputs=(f"{folder}/exports.map",),
    )


ARTIFACTS: list[Artifact] = [
    _library("libcuda", "simgpu/src/driver"),
    _library("libnvidia-ml", "simgpu/src/nvml"),
    Binding(
        name="sim-binding",
        module="simgpu._state",
        cdefs=(f"{_CORE}/state_layout.h", f"{_CORE}/python_api.h"),
        prelude='#include "core.h"\n#include "python_api.h"\n',
        sources=(f"{_CORE}/*.c",),
        includes=(_CORE,),
    ),
]
