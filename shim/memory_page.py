"""Writes docs/memory.md from the hook table."""

from pathlib import Path

from shim import left_alone
from shim.coverage import Row

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"

OPENING = """\
# What counts as memory

<!-- Written by `python -m shim.coverage --write` from the hook table; do not edit. -->

A container's cap is for all device memory that its processes hold on a GPU through the CUDA
driver API, together. The call that would pass it answers `CUDA_ERROR_OUT_OF_MEMORY`, as it would
on a GPU of that size. The tables below name every call of the driver that takes or returns device
memory and what it is charged; they are written from the table that the library itself is built
from, and a check compares that table with NVIDIA's headers.

- Memory is charged before the driver is asked, and returned when the driver refuses. So several
  processes that fill a GPU at once do not pass the cap together.
- The driver takes memory from a GPU in blocks of 2 MiB, and so does the account: 3 MiB are charged
  as 4 MiB, and small allocations of a context share blocks. What is charged is what is in use.
- Pools and graphs are charged for what the driver has reserved for them, in use or not. Pools grow
  in steps (32 MiB on the drivers known), and a step that does not fit under the cap is refused.
  Before anything is refused, what pools and graphs of the process hold without using it is
  trimmed, as the driver does when a GPU is full.
- Contexts and code have a size that no call tells. It is measured around the call that makes them:
  by what NVML shows for the process; where NVML does not list it, by what the whole GPU has in
  use, if the difference is plausible (up to 2 GiB for a context, up to 64 MiB for code unless NVML
  confirms more); where there is no NVML, a context counts as 256 MiB. What does not fit is undone
  and refused. Code that is loaded lazily by a launch is not seen.
- Arrays are charged by their extent, because the driver tells neither size nor address: blocks of
  their own above 1 MiB, below that a fair part of a block.
- Managed memory is charged in full to the device that was current when it was allocated, wherever
  its pages are.
- Pinned host memory is not device memory.
- Memory that is shared between processes is charged to the one that allocated it, for as long as
  that one holds it. If it lets go while another keeps its import, nobody is charged; the node agent
  sees the difference through NVML.
- A GPU that is not in the limits is hidden: from the driver by its own `CUDA_VISIBLE_DEVICES`,
  which is set while it initialises and understood as if the container's GPUs were all there are,
  and from NVML by the hooks below.
"""

SECTIONS = {
    "RESERVES": ("Calls that take memory", "charged"),
    "MEASURES": ("Calls whose memory is measured", "charged"),
    "RETURNS": ("Calls that give back", "returned"),
    "FOLLOWS": ("Calls that are watched, so that the others are right", "charged"),
    "THROTTLES": ("Calls that run something, under the compute share", "charged"),
    "ORDERS": ("Calls that order work, so that overlapping work is charged once", ""),
    "SHOWS": ("Calls that show the slice", "shown"),
    "FINDS": ("Calls that hand out the others", ""),
    "OPENS": ("Where it begins", ""),
}


def page(table: list[Row]) -> str:
    parts = [OPENING]
    for treatment, (title, heading) in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| call | {heading} |\n|---|---|\n")
        parts += [
            f"| {symbols} | {words} |\n"
            for words, symbols in _merged([row for row in table if row.treatment == treatment])
        ]
    parts.append("\n## Calls that are left alone\n\n| call | why |\n|---|---|\n")
    for reason, names in (*left_alone.DRIVER.items(), *left_alone.NVML.items()):
        parts.append(f"| {_code(sorted(names))} | {reason} |\n")
    return "".join(parts)


def _merged(rows: list[Row]) -> list[tuple[str, str]]:
    """Rows that say the same in one, in the order of the table."""
    by_words: dict[str, list[str]] = {}
    for row in rows:
        by_words.setdefault(row.words, []).append(row.symbol)
    return [(words, _code(symbols)) for words, symbols in by_words.items()]


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
