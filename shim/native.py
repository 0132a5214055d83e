"""What is built from the C in this folder: the preload library and Python's binding."""

from nativebuild import Artifact, Binding, Library

ARTIFACTS: list[Artifact] = [
    Library(
        name="libaliquot",
        target="shim/libaliquot.so",
        sources=("shim/src/*.c",),
        includes=("shim/include", "shim/abi"),
        flags=("-U_FORTIFY_SOURCE", "-fno-stack-protector"),
        # Bound to itself: the table must hold our own functions, not those of a library before us.
        link=(
            "-Wl,-soname,libaliquot.so",
            "-Wl,-Bsymbolic",
            "-Wl,--version-script=shim/src/exports.map",
        ),
        inputs=("shim/src/exports.map",),
    ),
    Binding(
        name="shim-binding",
        module="shim._files",
        cdefs=(
            "shim/include/limits_layout.h",
            "shim/include/usage_layout.h",
            "shim/include/arbiter_layout.h",
        ),
        prelude='#include "limits_file.h"\n#include "usage_file.h"\n#include "arbiter.h"\n',
        sources=(
            "shim/src/limits.c",
            "shim/src/usage.c",
            "shim/src/liveness.c",
            "shim/arbitration/*.c",
        ),
        includes=("shim/include", "shim/abi"),
    ),
]
