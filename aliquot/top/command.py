"""`aliquot top`: GPUs and the parts that containers have of them, once or live."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path

from aliquot.errors import UserError
from aliquot.top import selection, source
from aliquot.top.selection import ORDERS, Selection

HELP = "show who has which part of which GPU, and what they do with it"

LEAST_INTERVAL_S = 0.5


def configure(parser: ArgumentParser) -> None:
    parser.description = (
        "Shows each GPU and each container (or run) on it: memory in use against its cap, GPU time "
        "of the last seconds against its guaranteed part (the mark in the bar), and for how much "
        "of that time its launches were held back."
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", default="", help="part of NAMESPACE/POD/CONTAINER"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="only of these pods")
    parser.add_argument("--node", metavar="NAME", default="", help="only this node, or gpu-*")
    parser.add_argument("--gpu", metavar="N|UUID", default="", help="only this GPU of each node")
    parser.add_argument("--sort", choices=ORDERS, default="name", help="most first; by name else")
    parser.add_argument("-w", "--watch", action="store_true", help="go on until Ctrl-C")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="between two looks of --watch; 2 when not given",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=["table", "wide", "json"],
        default="table",
        help="wide: also policy, peak, refusals and uuids; json: for programs",
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    source.add_options(parser)


def run(options: Namespace) -> int:
    _check(options)
    wanted = Selection(
        options.name, options.namespace, options.node, options.gpu, order=options.sort
    )
    is_kubectl = Path(sys.argv[0]).name.startswith("kubectl")
    with ExitStack() as until:
        fetch = source.find_source(options, until, is_kubectl=is_kubectl)
        return _show(fetch, wanted, options)


def _show(fetch: source.Fetch, wanted: Selection, options: Namespace) -> int:
    if options.output == "json":
        return _print_json(fetch, wanted)
    # Only here: programs that read JSON should not wait for what draws tables.
    from aliquot.top import show

    is_wide = options.output == "wide"
    if options.watch:
        return show.watch(fetch, wanted, is_wide=is_wide, interval_s=options.interval)
    if options.svg is not None:
        return show.write_svg(fetch, wanted, options.svg, is_wide=is_wide)
    return show.print_once(fetch, wanted, is_wide=is_wide)


def _check(options: Namespace) -> None:
    if options.watch and (options.output == "json" or options.svg is not None):
        raise UserError("--watch draws on a terminal; leave out -o json and --svg")
    if options.svg is not None and options.output == "json":
        raise UserError("--svg writes a picture; leave out -o json")
    if options.watch and not options.interval >= LEAST_INTERVAL_S:
        raise UserError(f"--interval is {LEAST_INTERVAL_S:g} seconds at least")


def _print_json(fetch: source.Fetch, wanted: Selection) -> int:
    import msgspec

    from aliquot.protocol import view

    told = view.encode(selection.select(fetch(), wanted))
    print(msgspec.json.format(told).decode())
    return 0
