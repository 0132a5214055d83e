"""`aliquot demo`: the whole system on simulated GPUs, without a GPU and without a cluster."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from simcluster.demo.account import Account
from simcluster.demo.cluster import Cluster
from simcluster.demo.patience import Patience
from simcluster.demo.promises import exit_code
from simcluster.demo.screen import WIDTH, Screen, summary
from simcluster.demo.story import Story

HELP = "the whole system on simulated GPUs, with every promise checked"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Five pods share two simulated GPUs under the real node agent and the real extender: one "
        "reaches its memory cap, one borrows idle time and gives it back, one waits with its "
        "reason and starts when there is room. Needs neither a GPU nor a cluster. Exit code 0 "
        "only if every promise was kept; docs/demo.md says what is real and what stands in."
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave everything running afterwards, with its addresses, until Ctrl-C",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw a picture of the live table")


def run(options: argparse.Namespace) -> int:
    # A log has no width of its own; on a terminal rich finds it.
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    patience = Patience()
    screen = Screen(console, options.svg)
    cluster = Cluster(screen.say, patience)
    with patience.interruptible():
        try:
            with screen:
                cluster.start()
                with Account(cluster.gpus) as account:
                    screen.readings = account.live
                    kept = Story(cluster, account, screen, patience).play()
            console.print(summary(kept))
            broken = [each for each in kept if not each.kept]
            console.print(
                f"{len(broken)} of {len(kept)} promises were broken."
                if broken
                else f"All {len(kept)} promises were kept."
            )
            if options.keep:
                _keep(cluster, console, patience)
        finally:
            cluster.stop()
    return exit_code(kept)


def _keep(cluster: Cluster, console: Console, patience: Patience) -> None:
    console.print("Everything keeps running until Ctrl-C:")
    for what, address in cluster.addresses.items():
        console.print(f"  {what:26} {address}", highlight=False, soft_wrap=True)
    try:
        while True:
            cluster.check()
            patience.pause(1.0)
    except KeyboardInterrupt:
        console.print("Ending.")
