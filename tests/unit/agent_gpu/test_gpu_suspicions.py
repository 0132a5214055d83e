"""When a breach counts as one: not by a single look, and not only by looks in a row."""

import pytest

from deviceplugin.tenants.judgement import Breach, Kind, Tenant
from deviceplugin.tenants.suspicions import CONFIRMED_AFTER, LOOKS, Suspicions

GPU = "GPU-a"
TENANT = Tenant("t1", None, "uid-1", {GPU: 4})


def breach(pid: int = 1, text: str = "") -> Breach:
    return Breach(Kind.OVER_CAP, TENANT, GPU, "uid-1", text, (pid,))


def told(suspicions: Suspicions, rhythm: str) -> str:
    """What follows look by look, `x` a breach, `.` none and `?` a GPU that does not answer:
    `t`old, `c`ertain, `b`oth or nothing."""
    answer = ""
    for number, sign in enumerate(rhythm):
        found = [breach(number)] if sign == "x" else []
        new, certain = suspicions.confirm(found, lambda gpu, sign=sign: sign == "?" and gpu == GPU)
        answer += {(1, 0): "t", (0, 1): "c", (1, 1): "b", (0, 0): "-"}[len(new), len(certain)]
    return answer


@pytest.mark.parametrize(
    ("rhythm", "follows"),
    [
        ("xxxxxxxxx", "--b------"),
        ("xx.xx.xx.", "---t-----"),
        ("x.x.x.x.x", "----t----"),
        ("x..x..x..", "---------"),
        ("xx.x.xxx.", "---t---c-"),
        ("xxx.....xxx", "--b-------b"),
        ("xxx....xxxx", "--b--------"),
        ("x?x?x?x?x", "----b----"),
        ("xx???????x", "---------b"),
    ],
    ids=[
        "told once",
        "two of three",
        "every other",
        "seldom",
        "told, then steady",
        "ended and told again",
        "not ended yet",
        "an answer now and then",
        "no answer for long",
    ],
)
def test_a_breach_is_told_when_three_of_five_looks_saw_it(rhythm: str, follows: str) -> None:
    """And is certain when it was there three times without a pause."""
    assert (CONFIRMED_AFTER, LOOKS) == (3, 5)
    assert told(Suspicions(), rhythm) == follows


def test_what_lasts_is_what_the_last_look_saw() -> None:
    suspicions = Suspicions()
    told(suspicions, "xxx")
    assert [each.pids for each in suspicions.current] == [(2,)], "as it is now"
    assert suspicions.suspects == {"t1"}
    told(suspicions, ".")
    assert suspicions.current == ()
    assert suspicions.suspects == {"t1"}, "looked at closely as long as it is remembered"
    told(suspicions, "." * LOOKS)
    assert suspicions.suspects == frozenset()
