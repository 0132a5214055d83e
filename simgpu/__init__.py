"""Simulated GPUs: nodes that processes share through one file, and libraries they load.

`simgpu.node` makes nodes and looks at them; `simgpu.models` knows the hardware. Nothing is imported
here, because the native build reads this package before its binding exists.
"""
