"""From `2xA100-80G,1xL4` or a hardware file to the list of GPUs that a simulated node has."""

import difflib
import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from simgpu.catalog import MODELS, GpuModel

__all__ = [
    "MAX_GPUS",
    "MODELS",
    "GpuProfile",
    "SpecError",
    "find_model",
    "parse_spec",
    "profiles_of",
]

MAX_GPUS = 16
DEFAULT_SEED = "aliquot"

_MIB = 1 << 20
_NVIDIA_VENDOR = 0x10DE
_FIRST_BUS = 0x10
_ITEM = re.compile(r"(?:(?P<count>\d+)\s*[x*]\s*)?(?P<model>[a-z][a-z0-9-]*)", re.IGNORECASE)


class SpecError(ValueError):
    """The wanted hardware cannot be simulated; the text says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """One GPU of a node: the fields of struct sim_profile in the core's state_layout.h."""

    uuid: str
    name: str
    memory_bytes: int
    context_bytes: int
    sm_count: int
    compute_major: int
    compute_minor: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    l2_bytes: int
    power_limit_watts: int
    architecture: int
    brand: int
    pci_domain: int
    pci_bus: int
    pci_device_id: int
    pcie_generation: int
    pcie_width: int
    numa_node: int
    pcie_switch: int
    nvlinks: tuple[int, ...]
    """Links to each device of the node, MAX_GPUS numbers. A GPU's own links all lead into one
    switch when these numbers add up to more links than it has."""
    nvlink_version: int


def parse_spec(spec: str, seed: str = DEFAULT_SEED) -> list[GpuProfile]:
    """The GPUs that `spec` describes: counts and models, or the path of a .toml or .json file.

    The same spec and seed give the same uuids, so nodes of one cluster need different seeds.
    """
    text = spec.strip()
    if text.lower().endswith((".toml", ".json")):
        from simgpu.hardwarefile import load_hardware

        return load_hardware(Path(text), seed)
    models: list[GpuModel] = []
    for item in text.split(","):
        count, model = _parse_item(item.strip(), spec)
        if len(models) + count > MAX_GPUS:
            raise SpecError(
                f"`{spec}` asks for more than {MAX_GPUS} GPUs; a simulated node has 1 to {MAX_GPUS}"
            )
        models += [model] * count
    return profiles_of(models, seed)


def find_model(key: str) -> GpuModel:
    """The ready-made model with this name, in whatever spelling: a100-80gb, RTX4090."""
    wanted = _canonical(key)
    by_name = {_canonical(known): model for known, model in MODELS.items()}
    if model := by_name.get(wanted):
        return model
    near = [model.key for name, model in by_name.items() if name.startswith(wanted)]
    if not near:
        close = difflib.get_close_matches(wanted, by_name, n=1)
        near = [by_name[name].key for name in close]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise SpecError(f"no GPU model `{key}`; {hint}known models: {', '.join(MODELS)}")


def _canonical(key: str) -> str:
    return re.sub("[^A-Z0-9]", "", key.upper()).replace("GB", "G")


def _parse_item(item: str, spec: str) -> tuple[int, GpuModel]:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise SpecError(
            f"cannot read `{item}` in `{spec}`; write counts and models, such as "
            f"`2xA100-80G,1xL4`, or the path of a .toml or .json file; "
            f"known models: {', '.join(MODELS)}"
        )
    count = int(found["count"] or 1)
    if count == 0:
        raise SpecError(f"`{item}` in `{spec}` asks for no GPU at all; leave it out")
    return count, find_model(found["model"])


def profiles_of(models: list[GpuModel], seed: str) -> list[GpuProfile]:
    """Plugs GPUs into a node: two to a PCIe switch, half of the switches to a NUMA node."""
    switches = (len(models) + 1) // 2
    profiles = []
    for index, model in enumerate(models):
        switch = index // 2
        profiles.append(
            _plug(
                model,
                uuid=uuid_of(seed, index),
                pci_bus=_FIRST_BUS + 8 * index,
                pcie_switch=switch,
                numa_node=0 if switch < (switches + 1) // 2 else 1,
            )
        )
    return [
        replace(profile, nvlinks=_links(index, models)) for index, profile in enumerate(profiles)
    ]


def uuid_of(seed: str, index: int) -> str:
    """NVML's form of a uuid that depends on nothing but its arguments."""
    digits = hashlib.sha256(f"{seed}/{index}".encode()).hexdigest()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
    return f"GPU-{'-'.join(parts)}"


def _links(index: int, models: list[GpuModel]) -> tuple[int, ...]:
    """Links through the NVSwitch to every other GPU of the same model."""
    own = models[index]
    peers = [
        own.nvlink_count if peer.key == own.key and number != index else 0
        for number, peer in enumerate(models)
    ]
    return tuple(peers + [0] * (MAX_GPUS - len(peers)))


def _plug(
    model: GpuModel, *, uuid: str, pci_bus: int, pcie_switch: int, numa_node: int
) -> GpuProfile:
    return GpuProfile(
        uuid=uuid,
        name=model.name,
        memory_bytes=model.memory_mib * _MIB,
        context_bytes=model.context_mib * _MIB,
        sm_count=model.sm_count,
        compute_major=model.compute[0],
        compute_minor=model.compute[1],
        sm_clock_mhz=model.sm_clock_mhz,
        memory_clock_mhz=model.memory_clock_mhz,
        memory_bus_bits=model.memory_bus_bits,
        l2_bytes=model.l2_mib * _MIB,
        power_limit_watts=model.power_limit_watts,
        architecture=int(model.architecture),
        brand=int(model.brand),
        pci_domain=0,
        pci_bus=pci_bus,
        pci_device_id=model.pci_device << 16 | _NVIDIA_VENDOR,
        pcie_generation=model.pcie_generation,
        pcie_width=16,
        numa_node=numa_node,
        pcie_switch=pcie_switch,
        nvlinks=(0,) * MAX_GPUS,
        nvlink_version=model.nvlink_version,
    )
