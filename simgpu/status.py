"""A node's snapshot for people (tables) and for programs (JSON)."""

import dataclasses
import json

from rich.console import Console, Group, RenderableType
from rich.table import Table

from simgpu.models import MODELS
from simgpu.snapshot import Device, Process, Snapshot

__all__ = ["as_json", "as_tables", "models_table", "show"]

_MIB = 1 << 20


def as_json(snapshot: Snapshot) -> str:
    return json.dumps(dataclasses.asdict(snapshot), indent=2)


def as_tables(snapshot: Snapshot) -> RenderableType:
    devices = _table("gpu", "model", "memory", "busy", "idle", "launches", "util", "state")
    for device in snapshot.devices:
        devices.add_row(
            f"gpu{device.index}",
            device.name,
            f"{_mib(device.used_bytes)} / {_mib(device.memory_bytes)}",
            _seconds(device.busy_ns),
            _seconds(device.idle_ns),
            str(device.launches),
            f"{device.utilization_percent} %",
            _state(device),
        )
    if not snapshot.processes:
        return Group(devices, "", "no processes")
    processes = _table("pid", "gpu", "memory", "busy", "queued", "launches", "program")
    for process in snapshot.processes:
        for usage in process.usages:
            if usage.used_bytes or usage.busy_ns or usage.queued_ns or usage.launches:
                processes.add_row(
                    _pid(process),
                    f"gpu{usage.device}",
                    _mib(usage.used_bytes),
                    _seconds(usage.busy_ns),
                    _seconds(usage.queued_ns),
                    str(usage.launches),
                    process.name,
                )
    return Group(devices, "", processes)


def models_table() -> RenderableType:
    models = _table("model", "shown as", "memory", "SMs", "compute", "NVLinks")
    for model in MODELS.values():
        major, minor = model.compute
        models.add_row(
            model.key,
            model.name,
            f"{model.memory_mib} MiB",
            str(model.sm_count),
            f"{major}.{minor}",
            str(model.nvlink_count or ""),
        )
    return models


def show(content: RenderableType) -> None:
    """Prints it as wide as the terminal; into a pipe nothing is cut off."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(content)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    numbers = {"memory", "busy", "idle", "queued", "launches", "util", "SMs", "compute", "NVLinks"}
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", no_wrap=True)
    return table


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / _MIB:.0f} MiB"


def _seconds(duration_ns: int) -> str:
    """To the nanosecond: these are exact accounts."""
    return f"{duration_ns // 10**9}.{duration_ns % 10**9:09d} s"


def _state(device: Device) -> str:
    if device.lost:
        return "lost"
    return f"xid {device.last_xid}" if device.xid_count else "ok"


def _pid(process: Process) -> str:
    if process.host_pid is None:
        return f"{process.pid} in another namespace"
    return str(process.host_pid)
