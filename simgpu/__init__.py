"""Simulated GPUs: nodes that processes share through one file, and libraries they load."""

from simgpu.faults import FaultError
from simgpu.models import GpuProfile, SpecError, parse_spec
from simgpu.node import LIBRARIES, Node, NodeError
from simgpu.snapshot import Device, Process, Snapshot, Usage

__all__ = [
    "LIBRARIES",
    "Device",
    "FaultError",
    "GpuProfile",
    "Node",
    "NodeError",
    "Process",
    "Snapshot",
    "SpecError",
    "Usage",
    "parse_spec",
]
