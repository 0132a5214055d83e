"""`aliquot doctor`: all checks, worst news in red, advice below each."""

import itertools
from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from aliquot.doctor.finding import Finding, Level

HELP = "check driver, image, node and cluster, and say what to do"

_STYLES = {Level.GOOD: "green", Level.NOTE: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def configure(parser: ArgumentParser) -> None:
    parser.description = (
        "Looks at what Aliquot needs: the driver, NVML, this image's C library and the shim in it, "
        "the kubelet's sockets, the way to GPUs, the cluster's nodes, clock and webhook. Run it in "
        "a container, on a node or where kubectl works; what does not apply is said and skipped. "
        "Exits with 1 when something is broken."
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="how to write it"
    )
    parser.add_argument("--kubeconfig", type=Path, help="which cluster; as kubectl finds it else")
    parser.add_argument("--context", help="which context of the kubeconfig")


def run(options: Namespace) -> int:
    # Imported here: the list of commands needs none of it.
    from aliquot.doctor.cluster import check_cluster
    from aliquot.doctor.driver import check_driver
    from aliquot.doctor.image import check_image
    from aliquot.doctor.node import check_node

    findings: list[Finding] = []
    console = Console(highlight=False, soft_wrap=True)
    for finding in itertools.chain(
        check_driver(),
        check_image(),
        check_node(),
        check_cluster(options.kubeconfig, options.context),
    ):
        findings.append(finding)
        if options.output == "text":
            _show(console, finding)
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    broken = sum(finding.level is Level.FAIL for finding in findings)
    if options.output == "text":
        console.print(f"{broken} broken" if broken else "nothing is broken")
    return 1 if broken else 0


def _show(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.level]
    console.print(f"[{style}]{finding.level.value:8}[/] {finding.subject}: {escape(finding.text)}")
    if finding.advice:
        console.print(f"         {escape(finding.advice)}")
