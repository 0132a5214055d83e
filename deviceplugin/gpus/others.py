"""Other device plugins of the node that hand out the same GPUs; decided over plain lists."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from deviceplugin.booking.ids import RESOURCES
from deviceplugin.booking.sources import Holder
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.inventory import Choice

__all__ = ["Rival", "find_rivals", "gpu_named_in", "was_given", "withhold"]

# Plugins that share a GPU add numbers to its uuid (GPU-...::3, GPU-...-3); parts of a GPU in MIG
# mode used to be called MIG-GPU-.../1/0.
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rival:
    """A resource of another plugin that stands for GPUs of ours."""

    resource: str
    uuids: frozenset[str]

    def describe(self, hardware: Hardware, choice: Choice) -> str:
        """What an administrator should know and do, in one text for event and log."""
        shared = [gpu for gpu in hardware.gpus if gpu.uuid in self.uuids]
        names = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in shared)
        kept = [str(gpu.index) for gpu in shared if choice.lists(gpu.index, gpu.uuid)]
        here = (
            f"Only those that the setting gpus lists are handed out here: {', '.join(kept)}"
            if kept
            else "None of them is handed out here until the setting gpus lists it"
        )
        return (
            f"another device plugin advertises the same GPUs as {self.resource}: {names}. {here}. "
            "Give each GPU to one plugin only."
        )


def gpu_named_in(device_id: str) -> str | None:
    """The uuid inside another plugin's device id."""
    match = _UUID.search(device_id)
    return "GPU-" + match[0][4:].lower() if match is not None else None


def was_given(gpu: str, held: Iterable[Holder] | None, rivals: Iterable[Rival]) -> bool | None:
    """Whether a pod that holds this has the GPU through another plugin. None when nobody knows:
    what it holds is not known, and another plugin does hand out the GPU."""
    if held is None:
        return None if any(gpu in rival.uuids for rival in rivals) else False
    return any(
        gpu == gpu_named_in(each)
        for holder in held
        if holder.resource not in RESOURCES
        for each in holder.ids
    )


def find_rivals(advertised: Mapping[str, Iterable[str]], hardware: Hardware) -> tuple[Rival, ...]:
    """`advertised` are the ids of all plugins by resource, as the kubelet lists them."""
    ours = {gpu.uuid for gpu in hardware.gpus}
    found = []
    for resource, device_ids in sorted(advertised.items()):
        if resource in RESOURCES:
            continue
        shared = {uuid for each in device_ids if (uuid := gpu_named_in(each)) in ours}
        if shared:
            found.append(Rival(resource, frozenset(uuid for uuid in shared if uuid is not None)))
    return tuple(found)


def withhold(hardware: Hardware, rivals: Iterable[Rival], choice: Choice) -> Hardware:
    """The same GPUs; those that a rival advertises are ours only if the settings say so outright.

    They stay in the picture, unusable, because containers may have parts of them already.
    """
    claimed = {uuid: rival.resource for rival in rivals for uuid in rival.uuids}
    return replace(
        hardware,
        gpus=tuple(
            replace(gpu, unusable=f"another plugin advertises it as {claimed[gpu.uuid]}")
            if gpu.uuid in claimed and not gpu.unusable and not choice.lists(gpu.index, gpu.uuid)
            else gpu
            for gpu in hardware.gpus
        ),
    )
