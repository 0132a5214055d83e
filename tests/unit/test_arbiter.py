"""What the arbiter promises: shares are kept, idle time is lent, nothing is given twice."""

from hypothesis import given
from hypothesis import strategies as st

from shim.arbiter import Claim, decide
from shim.limits import WHOLE, Policy


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    """Containers whose guaranteed shares fit on one GPU."""
    left = WHOLE
    found = []
    for _ in range(draw(st.integers(1, 12))):
        share = draw(st.integers(0, left))
        left -= share
        demand = draw(st.one_of(st.just(0), st.integers(1, WHOLE)))
        held = demand > 0 and draw(st.booleans())
        policy = draw(st.sampled_from(list(Policy)))
        found.append(Claim(share, policy, draw(st.integers(1, 100)), demand, held))
    return found


@given(claims())
def test_nobody_gets_less_than_its_share_and_fixed_never_more(wanted: list[Claim]) -> None:
    for claim, grant in zip(wanted, decide(wanted), strict=True):
        assert claim.share <= grant <= WHOLE
        if claim.policy is Policy.FIXED:
            assert grant == claim.share


@given(claims())
def test_no_time_is_promised_twice(wanted: list[Claim]) -> None:
    """What is lent comes from what others do not use of their share."""
    grants = decide(wanted)
    lent = sum(grant - claim.share for claim, grant in zip(wanted, grants, strict=True))
    unused = WHOLE - sum(
        claim.share if claim.held else min(claim.share, claim.demand) for claim in wanted
    )
    assert lent <= max(unused, 0)


@given(claims())
def test_who_wants_nothing_borrows_nothing(wanted: list[Claim]) -> None:
    for claim, grant in zip(wanted, decide(wanted), strict=True):
        if claim.demand == 0:
            assert grant == claim.share


def busy(share: int, policy: Policy, weight: int = 1) -> Claim:
    return Claim(share, policy, weight, demand=WHOLE, held=True)


def test_an_idle_share_is_lent_whole() -> None:
    assert decide([busy(3000, Policy.BURST), Claim(7000, Policy.BURST)]) == [WHOLE, 7000]


def test_a_lender_that_is_back_has_its_share() -> None:
    assert decide([busy(3000, Policy.BURST), busy(7000, Policy.BURST)]) == [3000, 7000]


def test_borrowers_share_by_weight() -> None:
    idle = Claim(7000, Policy.BURST)
    light, heavy, _ = decide(
        [busy(1000, Policy.BURST, weight=1), busy(1000, Policy.BURST, weight=3), idle]
    )
    assert (light - 1000) * 3 == heavy - 1000
    assert light + heavy == WHOLE


def test_best_effort_has_only_what_borrowers_leave() -> None:
    burst, leftover = decide([busy(2000, Policy.BURST), busy(100, Policy.BEST_EFFORT)])
    assert (burst, leftover) == (WHOLE - 100, 100)
    fixed, leftover = decide([busy(2000, Policy.FIXED), busy(100, Policy.BEST_EFFORT)])
    assert (fixed, leftover) == (2000, WHOLE - 2000)
