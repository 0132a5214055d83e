"""What the agent would advertise here, for an administrator to read before it does."""

import threading
from collections.abc import Iterator

from aliquot.errors import OperationError, UserError
from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from aliquot.sizes import format_size
from deviceplugin.agent import FIRST_LOOK_S, choice_of, sharing_of, without_units
from deviceplugin.booking import ids
from deviceplugin.booking.supply import Supply
from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.nvml import Nvml
from deviceplugin.settings import Settings
from deviceplugin.telemetry.web import Web

__all__ = ["describe"]


def describe(settings: Settings) -> str:
    hardware = _look(settings)
    supply = Supply(sharing_of(settings), hardware)
    lines = [_line(gpu, supply) for gpu in hardware.gpus]
    usable = list(supply.usable())
    for resource, what in ((MEMORY_RESOURCE, _unit(supply)), (COMPUTE_RESOURCE, "1 percent")):
        count = sum(supply.count(resource, gpu.uuid) for gpu in usable)
        lines.append(f"would advertise {count} of {resource}, each {what}")
    ids.check_message(
        [gpu.memory_bytes for gpu in hardware.gpus],
        settings.kept_back_bytes,
        settings.memory_unit_bytes,
    )
    lines += [f"but: {each}" for each in _troubles(settings, supply)]
    return "".join(f"{line}\n" for line in lines)


def _troubles(settings: Settings, supply: Supply) -> Iterator[str]:
    yield from without_units(supply)
    if settings.listen is not None:
        try:
            Web(settings.listen, {}).close()
        except UserError as error:
            yield str(error)


def _line(gpu: Gpu, supply: Supply) -> str:
    units = supply.count(MEMORY_RESOURCE, gpu.uuid)
    state = f" (not now: {gpu.unusable})" if gpu.unusable else ""
    return (
        f"GPU {gpu.index}: {gpu.model}, {format_size(gpu.memory_bytes)}, {gpu.uuid}: "
        f"{units} units, {supply.count(COMPUTE_RESOURCE, gpu.uuid)} percent{state}"
    )


def _unit(supply: Supply) -> str:
    return format_size(supply.sharing.unit_bytes)


def _look(settings: Settings) -> Hardware:
    pictures: list[Hardware] = []
    looked = threading.Event()

    def take(hardware: Hardware) -> None:
        pictures.append(hardware)
        looked.set()

    watch = HealthWatch(Nvml(settings.host_dir), take, choice_of(settings))
    watch.start()
    try:
        if not looked.wait(FIRST_LOOK_S):
            raise OperationError(f"the driver has not told its GPUs within {FIRST_LOOK_S:g} s")
    finally:
        watch.stop()
    return pictures[0]
