"""The node agent's answer to a resize: once, with what was done or why not."""

import pytest

from aliquot.protocol import resize
from aliquot.protocol.resize import Amounts, ResizeRequest
from deviceplugin.cluster.resizing import Outcome, answer_resize


class RefusedError(Exception):
    pass


class Books:
    """Carries out what fits in ten units."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Amounts]] = []

    def resize(self, container: str, wanted: Amounts) -> Amounts:
        self.asked.append((container, wanted))
        if (wanted.memory_units or 0) > 10:
            raise RefusedError("10 units are free")
        return Amounts(wanted.memory_units or 4, wanted.compute_percent or 20)


def answer(text: str, books: Books, answered: str = "", unit_mib: int = 256) -> Outcome | None:
    return answer_resize(text, answered, unit_mib, books.resize, (RefusedError,))


def wish(request_id: str = "r1", **containers: Amounts) -> str:
    return resize.encode(ResizeRequest(request_id, containers))


def test_what_fits_is_done_and_told() -> None:
    outcome = answer(wish(main=Amounts(8, None)), Books())
    assert outcome is not None
    assert (outcome.reason, outcome.is_refused) == ("Resized", False)
    assert outcome.answer.containers == {"main": Amounts(8, 20)}
    assert "main now has 8 memory units of 256 MiB and 20 percent" in outcome.message


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    outcome = answer(wish(a=Amounts(2, 5), b=Amounts(11, None)), Books())
    assert outcome is not None
    assert outcome.is_refused
    assert outcome.answer.refusal == "container b: 10 units are free"
    assert outcome.answer.containers == {"a": Amounts(2, 5)}


def test_the_same_request_is_answered_once_and_the_next_one_again() -> None:
    books = Books()
    first = answer(wish("r1", main=Amounts(8, None)), books)
    assert first is not None
    said = resize.encode(first.answer)
    assert answer(wish("r1", main=Amounts(8, None)), books, said) is None
    assert answer(wish("r2", main=Amounts(8, None)), books, said) is not None
    assert len(books.asked) == 2


def test_other_units_are_turned_into_the_nodes() -> None:
    books = Books()
    outcome = answer(wish(main=Amounts(5, None)), books, unit_mib=1024)
    assert books.asked == [("main", Amounts(2, None))]
    assert outcome is not None
    assert outcome.answer.unit_mib == 1024
    assert "of 1024 MiB" in outcome.message


@pytest.mark.parametrize(
    "text",
    [
        "6Gi",
        "{}",
        '{"id": "x", "containers": {"a": {}}}',
        '{"id": "", "containers": {"a": {"memory_units": 5}}}',
        '{"id": "x", "containers": {"a": {"memory_units": %s}}}' % ("9" * 400),
        '"' * 100_000,
        '{"x":' * 3000,
    ],
)
def test_what_cannot_be_read_is_refused_once(text: str) -> None:
    books = Books()
    outcome = answer(text, books)
    assert outcome is not None
    assert "cannot be read" in outcome.answer.refusal
    assert len(resize.encode(outcome.answer)) < 2048, "there is room for other annotations"
    assert answer(text, books, resize.encode(outcome.answer)) is None
    assert books.asked == []


def test_a_mistake_of_the_agent_is_an_answer_too() -> None:
    """The user does not wait for ever, and no pod keeps the agent from seeing others."""

    def fail(container: str, wanted: Amounts) -> Amounts:
        raise OverflowError("int too large")

    text = wish(main=Amounts(8, None))
    outcome = answer_resize(text, "", 256, fail, (RefusedError,))
    assert outcome is not None
    assert "container main: the agent failed (OverflowError: int too large)" in (
        outcome.answer.refusal
    )


def test_a_long_refusal_is_cut() -> None:
    def refuse(container: str, wanted: Amounts) -> Amounts:
        raise RefusedError("no" * 5000)

    outcome = answer_resize(wish(main=Amounts(8, None)), "", 256, refuse, (RefusedError,))
    assert outcome is not None
    assert len(outcome.answer.refusal) == 1024
    assert outcome.answer.refusal.endswith("on...")


def test_a_damaged_answer_does_not_hide_a_request() -> None:
    assert answer(wish(main=Amounts(1, 1)), Books(), "{") is not None
