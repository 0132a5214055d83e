"""`aliquot explain POD`: why a pod waits, node by node, as the extender sees it."""

from argparse import ArgumentParser, Namespace
from typing import Any
from urllib.parse import quote

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aliquot import clusteraccess
from aliquot.clusteraccess import ExtenderLink
from aliquot.errors import UserError
from aliquot.kubernetes.errors import ApiError

HELP = "say why a pod waits for its GPU, or where it is"

_FULLEST_TABLE = 20
"""Nodes beyond this many are counted, not listed, unless asked for."""


class Gpu(msgspec.Struct, frozen=True):
    index: int
    model: str
    memory_gib: float
    memory_free_gib: float
    compute_percent: int
    compute_free_percent: int
    fits: bool
    unusable: str = ""


class Node(msgspec.Struct, frozen=True):
    node: str
    fits: bool
    reason: str = ""
    gpus: tuple[Gpu, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    containers: tuple[str, ...]
    gpus: int
    of_each: str


class Explanation(msgspec.Struct, frozen=True):
    pod: str
    verdict: str
    nodes: tuple[Node, ...]
    asked: tuple[Asked, ...] = ()
    waiting_s: float | None = None


def configure(parser: ArgumentParser) -> None:
    parser.description = (
        "Asks the scheduler extender for every node and GPU what speaks against the pod there."
    )
    parser.add_argument("pod", metavar="POD", help="its name")
    parser.add_argument("-n", "--namespace", help="its namespace; the context's when not given")
    parser.add_argument("-A", "--all-nodes", action="store_true", help="list every node")
    parser.add_argument(
        "-o", "--output", choices=["table", "json"], default="table", help="how to write it"
    )
    clusteraccess.add_options(parser)


def run(options: Namespace) -> int:
    extender = ExtenderLink(options)
    pod = f"{options.namespace or extender.namespace}/{options.pod}"
    path = f"/explain?pod={quote(pod, safe='/')}"
    try:
        if options.output == "json":
            told = extender.get(path, dict[str, Any])
            print(msgspec.json.format(msgspec.json.encode(told)).decode())
        else:
            show(extender.get(path, Explanation), Console(highlight=False), options.all_nodes)
    except ApiError as error:
        if error.not_found:
            raise UserError(
                f"{error}; is it `-n NAMESPACE`, and does the extender run as {extender.place}?"
            ) from None
        raise
    finally:
        extender.close()
    return 0


def show(told: Explanation, console: Console, all_nodes: bool) -> None:
    for asked in told.asked:
        gpus = "one GPU" if asked.gpus == 1 else f"each of {asked.gpus} GPUs"
        console.print(f"{', '.join(asked.containers)}: {escape(asked.of_each)} of {gpus}")
    waiting = "" if told.waiting_s is None else f" (waiting for {told.waiting_s:.0f} s)"
    console.print(f"{told.pod}: {escape(told.verdict)}{waiting}")
    if not told.nodes:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("NODE", "GPU", "MODEL", "MEMORY FREE", "COMPUTE FREE", ""):
        table.add_column(title, no_wrap=title != "", overflow="fold")
    listed = told.nodes if all_nodes else told.nodes[:_FULLEST_TABLE]
    for node in listed:
        for row in _rows(node):
            table.add_row(*map(escape, row))
    console.print(table)
    if len(listed) < len(told.nodes):
        console.print(f"and {len(told.nodes) - len(listed)} more nodes; --all-nodes lists them")


def _rows(node: Node) -> list[tuple[str, ...]]:
    verdict = "fits" if node.fits else node.reason
    if not node.gpus:
        return [(node.node, "", "", "", "", verdict)]
    return [
        (
            node.node if number == 0 else "",
            str(gpu.index),
            gpu.model,
            f"{gpu.memory_free_gib:g} of {gpu.memory_gib:g} GiB",
            f"{gpu.compute_free_percent} of {gpu.compute_percent} %",
            verdict if number == 0 else gpu.unusable,
        )
        for number, gpu in enumerate(node.gpus)
    ]
