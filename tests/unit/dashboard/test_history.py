from aliquot.protocol.view import History
from scheduler_ext.dashboard.history import total

NOW = 1_800_000_000.0


def made(values: list[float | None], *, step_s: int = 60, end_at: float = NOW) -> History:
    return History(
        step_s=step_s,
        end_at=end_at,
        memory_held_bytes=[None if each is None else 10 * each for each in values],
        memory_used_bytes=values,
        compute_held_percent=[None if each is None else 2 * each for each in values],
        compute_used_percent=values,
    )


def test_steps_of_the_same_time_are_added() -> None:
    both = total([made([1.0, 2.0, 3.0]), made([10.0, 20.0, 30.0])], NOW)
    assert both is not None
    assert both.step_s == 60
    assert both.end_at == NOW
    assert len(both.memory_used_bytes) == 60
    assert both.memory_used_bytes[-4:] == [None, 11.0, 22.0, 33.0]
    assert both.memory_held_bytes[-1] == 330.0
    assert both.compute_held_percent[-1] == 66.0
    assert both.compute_used_percent[-1] == 33.0


def test_what_only_one_knows_counts_and_what_nobody_knows_stays_unknown() -> None:
    both = total([made([1.0, None, None]), made([None, 2.0, None])], NOW)
    assert both is not None
    assert both.memory_used_bytes[-3:] == [1.0, 2.0, None]


def test_clocks_and_steps_need_not_meet() -> None:
    late = made([5.0, 7.0], end_at=NOW + 20)
    fine = made([1.0, 3.0] * 60, step_s=30)
    both = total([fine, late], NOW)
    assert both is not None
    assert both.step_s == 60
    # The middle of a step decides: the late one's last minute is mostly the last full minute.
    assert both.memory_used_bytes[-2:] == [2.0 + 5.0, 2.0 + 7.0]


def test_an_hour_is_shown() -> None:
    long = total([made([1.0] * 500)], NOW)
    assert long is not None
    assert long.memory_used_bytes == [1.0] * 60


def test_absurd_histories_hide_nobody_elses() -> None:
    good = made([1.0])
    absurd = [
        made([9.0], end_at=NOW + 86_400),
        made([9.0], end_at=1e300),
        made([9.0], end_at=0.0),
        made([9.0], step_s=0),
        made([9.0], step_s=10**9),
        made([]),
    ]
    alone = total([good], NOW)
    assert total([good, *absurd], NOW) == alone
    assert total(absurd, NOW) is None
    assert total([], NOW) is None


def test_lists_of_unequal_lengths_are_read_from_their_end() -> None:
    odd = History(
        step_s=60,
        end_at=NOW,
        memory_held_bytes=[1.0],
        memory_used_bytes=[3.0, 4.0],
        compute_held_percent=[],
        compute_used_percent=[5.0],
    )
    told = total([odd], NOW)
    assert told is not None
    assert told.memory_used_bytes[-2:] == [3.0, 4.0]
    assert told.compute_held_percent == [None] * 60
