"""Compute shares as people write them: `--compute 30 --policy burst --weight 2`."""

from argparse import ArgumentParser, Namespace
from decimal import Decimal, InvalidOperation

from aliquot.errors import UserError
from aliquot.run.registry import Compute, Run
from shim.limits import Kind, Policy

__all__ = ["add_compute_options", "check_same", "format_share", "parse_compute", "parse_share"]

_POLICIES = {policy.name.lower().replace("_", "-"): policy for policy in Policy}


def add_compute_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--compute",
        metavar="PERCENT",
        help="part of each GPU's time, 1 to 100; everything when not given",
    )
    parser.add_argument(
        "--policy",
        choices=list(_POLICIES),
        help="fixed: never more; burst (default): idle time of others may be borrowed; "
        "best-effort: only what others leave",
    )
    parser.add_argument(
        "--weight",
        type=int,
        metavar="N",
        help="weighs this borrower among others; 1 when not given",
    )


def parse_compute(options: Namespace) -> Compute | None:
    """What the options ask for; None when they say nothing."""
    if options.compute is None:
        if options.policy is not None or options.weight is not None:
            raise UserError("--policy and --weight need a share: say --compute PERCENT as well")
        return None
    weight = 1 if options.weight is None else options.weight
    if not 1 <= weight <= 1000:
        raise UserError(f"a weight is a whole number from 1 to 1000, not {weight}")
    return Compute(parse_share(options.compute), _POLICIES[options.policy or "burst"], weight)


def parse_share(text: str) -> int:
    """Hundredths of a percent."""
    try:
        share = Decimal(text.strip().removesuffix("%")) * 100
    except InvalidOperation:
        raise UserError(f"{text!r} is not a percentage of a GPU; write it like 30") from None
    if share != share.to_integral_value() or not 100 <= share <= 10_000:
        raise UserError(f"a share is 1 to 100 percent of a GPU, not {text}")
    return int(share)


def format_share(share: int) -> str:
    return (
        f"{Decimal(share) / 100:f}".rstrip("0").rstrip(".") + "%"
        if share % 100
        else (f"{share // 100}%")
    )


def check_same(run: Run, compute: Compute) -> None:
    """Joining a run never changes it: what is asked must be what it has."""
    present = run.limits(Kind.COMPUTE)
    has = Compute(present.devices[0].share, present.policy, present.weight)
    if has != compute:
        policy = has.policy.name.lower().replace("_", "-")
        raise UserError(
            f"the run {run.id} has {format_share(has.share)} of the GPU's time ({policy}, weight "
            f"{has.weight}); join it without --compute, or choose another --name"
        )
