"""Tenants that were well and use the same rest for one look, and nobody else does."""

from deviceplugin.tenants.judgement import Tenant, Use
from deviceplugin.tenants.rest import Rest

GPU, OTHER = "GPU-a", "GPU-b"
TENANTS = {number: Tenant(f"t{number}", None, f"uid-{number}", {GPU: 10}) for number in (1, 2)}
USES = [Use(GPU, 1, 100), Use(OTHER, 1, 50), Use(GPU, 2, 200)]


def rested() -> Rest:
    """After a first look in which everybody was well."""
    rest = Rest()
    assert rest.awake(USES) == USES
    rest.judged(USES, TENANTS, [])
    return rest


def test_who_was_well_rests_for_one_look_and_not_for_two() -> None:
    rest = rested()
    assert rest.awake(USES) == []
    rest.judged([], {}, [])
    assert rest.awake(USES) == USES


def test_who_uses_more_or_less_is_awake_with_all_of_its_processes() -> None:
    for changed in (Use(GPU, 1, 101), Use(GPU, 1, 99), Use(GPU, 1, None)):
        uses = [changed, *USES[1:]]
        assert rested().awake(uses) == uses[:2]
    assert rested().awake(USES[1:]) == USES[1:2], "it uses one GPU less"


def test_a_suspect_does_not_rest() -> None:
    rest = Rest()
    rest.awake(USES)
    rest.judged(USES, TENANTS, ["t2"])
    assert rest.awake(USES) == USES[2:]
    rest.judged(USES[2:], TENANTS, ["t2"])
    assert rest.awake(USES) == USES, "and the others are looked at again"


def test_while_somebody_is_new_nobody_rests() -> None:
    """Only a look at everybody tells whose it is."""
    uses = [*USES, Use(GPU, 3, 1)]
    assert rested().awake(uses) == uses


def test_strangers_never_rest() -> None:
    rest = Rest()
    rest.awake(USES)
    rest.judged(USES, {1: TENANTS[1]}, [])
    assert rest.awake(USES) == USES[2:]
