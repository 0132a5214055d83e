"""New limits for a run of this machine, while it runs: the local half of `aliquot resize`."""

from argparse import Namespace
from dataclasses import replace

from aliquot.errors import UserError
from aliquot.run import gpus
from aliquot.run.compute import format_share, parse_share
from aliquot.run.folder import own_folder
from aliquot.run.registry import Run, living_runs, locked
from aliquot.sizes import format_size, parse_cap
from shim.limits import DeviceLimits, Kind


def run(options: Namespace) -> int:
    memory_of = {gpu.uuid: gpu for gpu in gpus.find()} if options.memory else {}
    folder = own_folder()
    with locked(folder):
        living = {each.id: each for each in living_runs(folder)}
        if options.id not in living:
            there_are = ", ".join(living) or "none"
            raise UserError(f"there is no run {options.id}; running are: {there_are}")
        found = living[options.id]
        present = found.limits(Kind.COMPUTE)
        changed = [_change(device, options, memory_of) for device in found.limits().devices]
        shares = {device.uuid: device.share for device in present.devices}
        if options.compute is None:
            changed = [replace(each, share=shares.get(each.uuid, each.share)) for each in changed]
        # Grants are the arbiter's to give anew, from the new share.
        found.change(replace(present, devices=tuple(changed)))
    _report(found, changed, options)
    return 0


def _change(
    device: DeviceLimits, options: Namespace, memory_of: dict[str, gpus.Gpu]
) -> DeviceLimits:
    device = replace(device, grant=0, grant_until_ns=0)
    if options.compute is not None:
        device = replace(device, share=parse_share(options.compute))
    if options.memory is None:
        return device
    gpu = memory_of.get(device.uuid)
    if gpu is None:
        raise UserError(f"the GPU {device.uuid} of this run is not there any more")
    limit_bytes = parse_cap(options.memory, gpu.memory_bytes)
    if limit_bytes > gpu.memory_bytes:
        raise UserError(
            f"{options.memory} does not fit GPU {gpu.index}: it has {format_size(gpu.memory_bytes)}"
        )
    return replace(device, limit_bytes=limit_bytes)


def _report(found: Run, changed: list[DeviceLimits], options: Namespace) -> None:
    living = [each for each in found.usage().processes if each.pid and not each.is_gone()]
    indices = found.gpu_indices()
    for number, device in enumerate(changed):
        parts = []
        if options.memory is not None and device.limit_bytes is not None:
            parts.append(f"{format_size(device.limit_bytes)} of memory")
        if options.compute is not None:
            parts.append(f"{format_share(device.share)} of the time")
        print(f"{found.id} now has {' and '.join(parts)} of GPU {indices.get(device.uuid)}")
        used_bytes = sum(process.held_bytes[number] for process in living)
        if options.memory is not None and used_bytes > (device.limit_bytes or used_bytes):
            print(
                f"it holds {format_size(used_bytes)} there: allocations are refused until it fits"
            )
