"""Measures placement quality: `python -m bench.placement --protocol fill --nodes N --pods P`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.placement_fgd import Fgd
from bench.placement_files import (
    Event,
    InputError,
    read_arrivals,
    read_events,
    read_nodes,
    read_pods,
    write_decisions,
)
from bench.placement_judge import faults
from bench.placement_protocols import (
    CHURN_LIFE_TIMES,
    CHURN_LOAD,
    CHURN_MEASURED_FROM,
    Outcome,
    capacity_milli,
    churn_events,
    fill_arrivals,
    replay,
)
from bench.placement_references import BestFit, Random
from bench.placement_variants import VARIANTS, vary
from scheduler_ext.placement import Cluster, Node, Placer, Policy, Request, policy_named

POLICIES = ("fragmentation", "pack", "spread", "random", "best-fit", "fgd")
WRONG_INPUT = 2
BROKEN_RULE = 1


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        return _run(options)
    except InputError as error:
        print(f"bench.placement: {error}", file=sys.stderr)
        return WRONG_INPUT


def _run(options: argparse.Namespace) -> int:
    nodes = read_nodes(options.nodes)
    pods = read_pods(options.pods) if options.pods else []
    if options.variant:
        pods = vary(pods, nodes, options.variant)
    given: list[Event] | None = None
    if options.arrivals:
        given = read_arrivals(options.arrivals)
    elif options.events:
        given = read_events(options.events)
    elif not pods:
        raise InputError("--pods is needed to make arrivals")
    # A given list has one order of pods; only ties between nodes are left to the seed.
    seeds = options.seeds if given is None else options.seeds[:1]
    runs: list[dict[str, Any]] = []
    broken = False
    for seed in seeds:
        cluster = Cluster(_shuffled(nodes, seed))
        events, measured = given, None
        if events is None:
            if options.protocol == "fill":
                events = fill_arrivals(pods, capacity_milli(cluster), seed)
            else:
                events = churn_events(pods, capacity_milli(cluster), seed, options.load / 100)
                measured = (float(CHURN_MEASURED_FROM), float(CHURN_LIFE_TIMES))
        workload = [pod.request for pod in pods] or [e.pod.request for e in events if e.arrives]
        placer = Placer(cluster, _policy(options.policy, seed, workload))
        outcome = replay(placer, events, measured)
        if options.out:
            _write(options.out, outcome)
        found = faults(nodes, events, outcome.decisions) if options.judge else []
        for fault in found[:10]:
            print(f"bench.placement: seed {seed}: {fault}", file=sys.stderr)
        broken = broken or bool(found)
        runs.append(_figures(seed, outcome, options.protocol == "churn" or bool(options.events)))
    _report(options, runs)
    return BROKEN_RULE if broken else 0


def _policy(name: str, seed: int, workload: list[Request]) -> Policy:
    if name == "random":
        return Random(seed)
    if name == "best-fit":
        return BestFit()
    if name == "fgd":
        return Fgd(workload)
    return policy_named(name)


def _shuffled(nodes: list[Node], seed: int) -> list[Node]:
    """Ties between nodes go to the first: a fixed random order, as in the published runs."""
    order = np.random.default_rng(seed).permutation(len(nodes))
    return [nodes[index] for index in order]


def _figures(seed: int, outcome: Outcome, churn: bool) -> dict[str, Any]:
    figure = outcome.mean_allocated_percent if churn else outcome.allocated_percent
    return {
        "seed": seed,
        "gpu_allocated_percent": round(figure, 3),
        "arrived": len(outcome.decisions),
        "placed": outcome.placed,
        "ms_per_decision": round(outcome.decide_ms, 3),
    }


def _report(options: argparse.Namespace, runs: list[dict[str, Any]]) -> None:
    figures = [run["gpu_allocated_percent"] for run in runs]
    mean, spread = float(np.mean(figures)), max(figures) - min(figures)
    if options.json:
        report = {
            "protocol": options.protocol,
            "variant": options.variant,
            "load_percent": options.load if options.protocol == "churn" else None,
            "policy": options.policy,
            "gpu_allocated_percent": round(mean, 3),
            "spread_over_seeds": round(spread, 3),
            "runs": runs,
        }
        print(json.dumps(report, indent=2))
        return
    for run in runs:
        print(
            f"seed {run['seed']}: {run['gpu_allocated_percent']:.2f} % allocated, "
            f"{run['placed']} of {run['arrived']} pods placed, "
            f"{run['ms_per_decision']:.2f} ms each"
        )
    print(f"{options.policy}: {mean:.2f} % (spread {spread:.2f})")


def _write(path: Path, outcome: Outcome) -> None:
    rows: list[tuple[str, str, tuple[int, ...]]] = []
    for seq, decision in outcome.decisions.items():
        rows.append((seq, decision.node, decision.devices) if decision else (seq, "", ()))
    write_decisions(path, rows)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--protocol", choices=("fill", "churn"), default="fill")
    parser.add_argument("--nodes", type=Path, required=True, metavar="FILE")
    parser.add_argument("--pods", type=Path, metavar="FILE", help="the pods arrivals are drawn of")
    parser.add_argument("--variant", choices=VARIANTS, help="change the workload in one way first")
    parser.add_argument(
        "--load",
        type=_percent,
        default=100 * CHURN_LOAD,
        metavar="110",
        help="offered in churn, in %%",
    )
    parser.add_argument("--policy", choices=POLICIES, default="fragmentation")
    parser.add_argument("--seeds", type=_seeds, default="42-44", metavar="42-44")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--arrivals", type=Path, metavar="FILE", help="replay these arrivals")
    given.add_argument("--events", type=Path, metavar="FILE", help="replay arrivals and leaves")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where decisions are written")
    parser.add_argument("--judge", action="store_true", help="check every decision by the rules")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.out and not (options.arrivals or options.events):
        parser.error("--out needs --arrivals or --events")
    if options.load != 100 * CHURN_LOAD and (options.protocol != "churn" or options.events):
        parser.error("--load is of the churn that --protocol churn makes from --pods")
    if options.variant and (options.arrivals or options.events or not options.pods):
        parser.error("--variant changes --pods, from which arrivals are then made")
    return options


def _percent(text: str) -> float:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of percent, 1 to 1000")
    return float(text)


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r} is not like 42, 42-44 or 42,44")
        seeds.extend(range(int(first), int(last or first) + 1))
    if not 0 < len(seeds) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} names {len(seeds)} seeds")
    return seeds


if __name__ == "__main__":
    sys.exit(main())
