"""A container with its files, a process in it, and the watch that looks at both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.nvml import GpuProcess, Nvml, NvmlError
from deviceplugin.tenants.judgement import Breach, Kind
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER
from deviceplugin.tenants.watch import TenantWatch
from shim import limits, usage

GIB = 1 << 30
GPU = "GPU-00000000-0000-0000-0000-00000000000a"
UID = "0a1b2c3d-1111-2222-3333-444455556666"
PID = 4711


@dataclass
class Driver:
    """Stands in for a session with one process on the GPU."""

    used_bytes: int = GIB
    error: NvmlError | None = None
    listed: list[int] = field(default_factory=lambda: [PID])

    def processes(self, uuid: str) -> list[GpuProcess]:
        if self.error is not None:
            raise self.error
        return [GpuProcess(pid, self.used_bytes) for pid in self.listed]


@dataclass
class Clock:
    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s


@dataclass
class Scene:
    """A container with its files, and a process in it that has the shim."""

    folder: Path
    driver: Driver = field(default_factory=Driver)
    told: list[Breach] = field(default_factory=list)
    fell_from_bytes: int = 0
    allocations: list[ContainerAllocation] | None = None
    gpus: list[str] = field(default_factory=lambda: [GPU])
    starts: int = 1

    def __post_init__(self) -> None:
        process = self.folder / "proc" / str(PID)
        process.mkdir(parents=True)
        (process / "cgroup").write_text(f"0::/kubepods/pod{UID}/{'c' * 64}\n")
        (process / "mountinfo").write_text("")
        (process / "stat").write_text(f"{PID} (x) S {'0 ' * 18}7 0\n")
        self.shim.write_text("")
        inode = self.shim.stat().st_ino
        (process / "maps").write_text(f"1-2 r-xp 0 fe:01 {inode} /usr/lib/libaliquot.so\n")
        device = limits.DeviceLimits(GPU, 4 * GIB)
        limits.create(self.limits, limits.Kind.MEMORY, limits.Limits((device,)))
        usage.create(self.usage, limits.Kind.MEMORY, 1)

    @property
    def shim(self) -> Path:
        return self.folder / "libaliquot-1.so"

    @property
    def limits(self) -> Path:
        return self.folder / "limits"

    @property
    def usage(self) -> Path:
        return self.folder / "usage"

    def allocation(self) -> ContainerAllocation:
        return ContainerAllocation(
            id="t1",
            key=ContainerKey("ns", "pod", "main"),
            pod_uid=UID,
            gpus=(GPU,),
            memory_units=16,
            compute_percent=30,
            whole=False,
            policy="fixed",
            weight=1,
            memory_limits=self.limits,
            memory_usage=self.usage,
            compute_limits=None,
            compute_usage=None,
            started=True,
            planned=None,
            member=None,
            fell_from_bytes=self.fell_from_bytes,
            starts=self.starts,
        )

    def shrink(self, cap_bytes: int) -> None:
        self.fell_from_bytes = 4 * GIB
        limits.update(self.limits, limits.Limits((limits.DeviceLimits(GPU, cap_bytes),)))

    def watch(
        self,
        is_excused: Callable[[ContainerAllocation], bool] = lambda _: False,
        end: Callable[[Breach], None] = lambda _: None,
        was_given: Callable[[str, str], bool | None] = lambda _gpu, _pod_uid: False,
    ) -> TenantWatch:
        return TenantWatch(
            cast("Nvml", self.driver),
            gpus=lambda: self.gpus,
            allocations=lambda: (
                [self.allocation()] if self.allocations is None else self.allocations
            ),
            shims=lambda: [self.shim, self.folder / "an-old-one.so"],
            report=self.told.append,
            proc=self.folder / "proc",
            is_excused=is_excused,
            end=end,
            was_given=was_given,
        )

    def look_often(self, watch: TenantWatch | None = None) -> set[Kind]:
        watch = watch or self.watch()
        for _ in range(2 * CONFIRMED_AFTER):
            watch.look()
        return {breach.kind for breach in self.told}
