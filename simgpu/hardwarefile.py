"""Custom hardware: a small TOML or JSON file that starts from ready-made models and changes them.

    seed = "rack-7"          # optional; gives other uuids than another seed

    [[gpu]]
    model = "A100-80G"       # where to start from
    count = 2
    memory_bytes = 42949672960
    numa_node = 1

Every field of GpuProfile can be set, under its own name. JSON has the same shape:
{"seed": ..., "gpu": [{"model": ..., ...}, ...]}.
"""

import difflib
import json
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from simgpu.catalog import GpuModel
from simgpu.models import MAX_GPUS, GpuProfile, SpecError, find_model, profiles_of

__all__ = ["load_hardware"]

_TEXTS = {"uuid": 47, "name": 95}
"""Fields with text, and the longest that struct sim_profile keeps."""
_WIDE = {"memory_bytes", "context_bytes"}
_AT_LEAST_ONE = {
    "memory_bytes",
    "sm_count",
    "compute_major",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "memory_bus_bits",
    "power_limit_watts",
    "pcie_generation",
    "pcie_width",
}
_FIELDS = {field.name for field in fields(GpuProfile)}
_ENTRY_KEYS = {"model", "count", *_FIELDS}
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _File:
    """A hardware file's text, for messages that point into it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def error(self, problem: str, key: str | None = None, entry: int | None = None) -> SpecError:
        where = str(self.path)
        if key is not None and (line := self._line_of(key, entry)):
            where += f" line {line}"
        if entry is not None:
            where += f", gpu number {entry + 1}"
        return SpecError(f"{where}: {problem}")

    def _line_of(self, key: str, entry: int | None) -> int | None:
        """Where `key` is set, in TOML inside its own table; None when that is not certain."""
        start = 0
        if entry is not None:
            tables = [m.end() for m in re.finditer(r"^\s*\[\[\s*gpu\s*\]\]", self.text, re.M)]
            start = tables[entry] if entry < len(tables) else 0
        pattern = re.compile(rf'(?<![\w"-])"?{re.escape(key)}"?\s*[:=]')
        found = pattern.search(self.text, start)
        if found is None or (start == 0 and pattern.search(self.text, found.end())):
            return None
        return self.text.count("\n", 0, found.start()) + 1


def load_hardware(path: Path, seed: str) -> list[GpuProfile]:
    """The GPUs that a hardware file describes; its own seed wins over the given one."""
    try:
        file = _File(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read the hardware file {path}: {error}") from error
    document = _parse(file)
    if unknown := sorted(set(document) - {"seed", "gpu"}):
        raise file.error(_unknown(unknown[0], {"seed", "gpu"}), unknown[0])
    own_seed = document.get("seed", seed)
    if not isinstance(own_seed, str):
        raise file.error(f"seed must be text, not {own_seed!r}", "seed")
    entries = document.get("gpu")
    if not isinstance(entries, list) or not entries:
        raise file.error("describes no GPU; write a [[gpu]] table with a model for each kind")
    wanted: list[_Wanted] = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise file.error("must be a table with a model", entry=number)
        wanted += _read_entry(file, number, entry)
    if len(wanted) > MAX_GPUS:
        raise file.error(f"has {len(wanted)} GPUs; a simulated node has 1 to {MAX_GPUS}")
    return _build(file, wanted, own_seed)


def _parse(file: _File) -> dict[str, Any]:
    try:
        if file.path.suffix.lower() == ".toml":
            return tomllib.loads(file.text)
        document = json.loads(file.text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        # Both name the line and column.
        raise file.error(f"cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise file.error('must be one object, such as {"gpu": [{"model": "L4"}]}')
    return document


def _unknown(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"unknown key `{key}`; {hint}known: {', '.join(sorted(known))}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One GPU of the file: the entry that asks for it, its model, and what differs from that."""

    entry: int
    model: GpuModel
    changes: dict[str, Any]


def _read_entry(file: _File, number: int, entry: dict[str, Any]) -> list[_Wanted]:
    if unknown := sorted(set(entry) - _ENTRY_KEYS):
        raise file.error(_unknown(unknown[0], _ENTRY_KEYS), unknown[0], number)
    key = entry.get("model")
    if not isinstance(key, str):
        raise file.error("needs a `model` to start from", "model", number)
    try:
        model = find_model(key)
    except SpecError as error:
        raise file.error(str(error), "model", number) from error
    count = entry.get("count", 1)
    if type(count) is not int or not 1 <= count <= MAX_GPUS:
        raise file.error(f"count must be 1 to {MAX_GPUS}, not {count!r}", "count", number)
    if count > 1 and (single := sorted({"uuid", "pci_bus"} & set(entry))):
        raise file.error(f"{single[0]} is for one GPU, but count is {count}", single[0], number)
    changes = {
        name: _check(file, number, name, value) for name, value in entry.items() if name in _FIELDS
    }
    return [_Wanted(number, model, changes)] * count


def _check(file: _File, number: int, name: str, value: Any) -> Any:
    """The value as the profile keeps it."""
    if name in _TEXTS:
        if not isinstance(value, str) or not 1 <= len(value.encode()) <= _TEXTS[name]:
            problem = f"{name} must be text of 1 to {_TEXTS[name]} bytes, not {value!r}"
            raise file.error(problem, name, number)
        if name == "uuid" and not _UUID.fullmatch(value):
            problem = f"uuid must look like GPU-{'0' * 8}-0000-0000-0000-{'0' * 12}, not {value!r}"
            raise file.error(problem, name, number)
        return value
    if name == "nvlinks":
        if not isinstance(value, list) or len(value) > MAX_GPUS:
            problem = f"nvlinks must be a list of at most {MAX_GPUS} numbers, one for each GPU"
            raise file.error(problem, name, number)
        links = [_check_number(file, number, name, link, 0, 18) for link in value]
        return tuple(links + [0] * (MAX_GPUS - len(links)))
    low, high = int(name in _AT_LEAST_ONE), 2**32 - 1
    if name in _WIDE:
        high = 2**44
    elif name == "numa_node":
        low, high = -1, 1023
    elif name == "pci_bus":
        high = 255
    return _check_number(file, number, name, value, low, high)


def _check_number(file: _File, number: int, name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        problem = f"{name} must be a whole number from {low} to {high}, not {value!r}"
        raise file.error(problem, name, number)
    return value


def _build(file: _File, wanted: list[_Wanted], seed: str) -> list[GpuProfile]:
    plain = profiles_of([one.model for one in wanted], seed)
    profiles = [replace(profile, **one.changes) for profile, one in zip(plain, wanted, strict=True)]
    for index, (profile, one) in enumerate(zip(profiles, wanted, strict=True)):
        if profile.context_bytes >= profile.memory_bytes:
            problem = (
                f"a context takes {profile.context_bytes} bytes, which leaves nothing of "
                f"memory_bytes = {profile.memory_bytes}; raise it, or lower context_bytes"
            )
            raise file.error(problem, "memory_bytes", one.entry)
        for other in profiles[:index]:
            if profile.uuid == other.uuid:
                raise file.error(f"uuid {profile.uuid} is used twice", "uuid", one.entry)
            if (profile.pci_domain, profile.pci_bus) == (other.pci_domain, other.pci_bus):
                problem = f"PCI bus {profile.pci_bus} is used twice"
                raise file.error(problem, "pci_bus", one.entry)
        _check_links(file, index, profiles, one.entry)
    return profiles


def _check_links(file: _File, index: int, profiles: list[GpuProfile], entry: int) -> None:
    own = profiles[index]
    for peer, links in enumerate(own.nvlinks):
        if links == 0:
            continue
        if peer == index or peer >= len(profiles):
            problem = f"nvlinks leads from GPU {index} to GPU {peer}, which is not another GPU"
            raise file.error(problem, "nvlinks", entry)
        back = profiles[peer].nvlinks[index]
        if back != links:
            problem = f"GPU {index} has {links} links to GPU {peer}, but that has {back} back"
            raise file.error(problem, "nvlinks", entry)
        if own.nvlink_version == 0:
            raise file.error("nvlinks needs an nvlink_version of 1 to 5", "nvlinks", entry)
