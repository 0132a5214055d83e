"""What is built from the C of the cluster side: the worth of nodes, for placement."""

from nativebuild import Artifact, Binding

ARTIFACTS: list[Artifact] = [
    Binding(
        name="placement-binding",
        module="scheduler_ext.placement._worth",
        cdefs=("scheduler_ext/placement/native/worth_layout.h",),
        prelude='#include <stdbool.h>\n#include <stdint.h>\n#include "worth_layout.h"\n',
        sources=("scheduler_ext/placement/native/*.c",),
        includes=("scheduler_ext/placement/native",),
        # Several classes of pods at a time; and the same sums on every processor.
        flags=("-O3", "-ffp-contract=off"),
    ),
]
