"""`aliquot ps`: the runs of this user, what they may have and what they use."""

import json
import shlex
from argparse import ArgumentParser, Namespace
from typing import Any

from aliquot.run.folder import own_folder
from aliquot.run.registry import Run, living_runs, locked
from aliquot.sizes import format_size
from shim.limits import Kind, LimitsError
from shim.usage import UsageError

HELP = "list the commands that `aliquot run` has started"

_TITLES = ("RUN", "PID", "GPU", "LIMIT", "USED", "COMPUTE", "COMMAND")


def configure(parser: ArgumentParser) -> None:
    parser.description = (
        "Lists the runs of this user. LIMIT and USED (memory) and COMPUTE (GPU time) are those of "
        "the whole run: its commands share one cap."
    )
    parser.add_argument(
        "-o", "--output", choices=["table", "json"], default="table", help="how to write it"
    )


def run(options: Namespace) -> int:
    folder = own_folder()
    with locked(folder):
        living = living_runs(folder)
    runs = [described for each in living if (described := describe(each)) is not None]
    if options.output == "json":
        print(json.dumps(runs, indent=2))
    else:
        _print_table([row for each in runs for row in _rows(each)])
    return 0


def describe(run: Run) -> dict[str, Any] | None:
    """What a run may have and what it uses; None when it ended while we looked."""
    try:
        limits, usage, indices = run.limits(), run.usage(), run.gpu_indices()
        compute, spent = run.limits(Kind.COMPUTE), run.usage(Kind.COMPUTE)
    except (OSError, ValueError, LimitsError, UsageError):
        return None
    living = [process for process in usage.processes if process.pid and not process.is_gone()]
    return {
        "id": run.id,
        "policy": compute.policy.name.lower().replace("_", "-"),
        "weight": compute.weight,
        "gpus": [
            {
                "index": indices.get(device.uuid),
                "uuid": device.uuid,
                "limit_bytes": device.limit_bytes,
                "used_bytes": sum(process.held_bytes[number] for process in living),
                "peak_bytes": usage.devices[number].peak_bytes,
                "refused": usage.devices[number].refused,
                "compute_percent": compute.devices[number].share / 100,
                "busy_ns": spent.devices[number].busy_ns,
                "throttled_ns": spent.devices[number].throttled_ns,
                "launches": spent.devices[number].launches,
            }
            for number, device in enumerate(limits.devices)
        ],
        "commands": [
            {"pid": command.pid, "command": list(command.words)} for command in run.commands()
        ],
        "processes": [
            {"pid": process.pid, "used_bytes": list(process.held_bytes)} for process in living
        ],
    }


def _rows(run: dict[str, Any]) -> list[tuple[str, ...]]:
    """A line for every command, and further ones for further GPUs; processes that outlived all
    commands still have their run."""
    rows: list[tuple[str, ...]] = []
    commands = run["commands"] or [{"pid": "-", "command": ["(ended)"]}]
    for command in commands:
        for number, gpu in enumerate(run["gpus"]):
            limit = "none" if gpu["limit_bytes"] is None else format_size(gpu["limit_bytes"])
            rows.append(
                (
                    run["id"] if number == 0 else "",
                    str(command["pid"]) if number == 0 else "",
                    str(gpu["index"]),
                    limit,
                    format_size(gpu["used_bytes"]),
                    f"{gpu['compute_percent']:g}%",
                    _one_line(command["command"]) if number == 0 else "",
                )
            )
    return rows


def _one_line(words: list[str]) -> str:
    """Scripts given by `-c` have many lines; a table has one for each command."""
    text = shlex.join(words)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in [_TITLES, *rows]) for column in range(6)]
    for row in [_TITLES, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[6]]).rstrip())
