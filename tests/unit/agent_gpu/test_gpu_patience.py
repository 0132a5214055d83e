"""Calls that hang do not keep anybody from asking others."""

import threading
from collections.abc import Iterator

import pynvml
import pytest

from deviceplugin.gpus.nvml import NvmlError
from deviceplugin.gpus.patience import Patience, Unanswered

LONG_S = 60.0


@pytest.fixture
def patience() -> Iterator[Patience]:
    patience = Patience()
    yield patience
    patience.close()


class Hanging:
    """A call that comes back when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.came_back = threading.Event()

    def __call__(self) -> str:
        self.calls += 1
        assert self.go.wait(LONG_S)
        self.came_back.set()
        return "late"


def test_one_that_hangs_does_not_keep_others_from_being_asked(patience: Patience) -> None:
    hanging = Hanging()
    answers = patience.ask_all({"a": lambda: "A", "b": hanging, "c": lambda: "C"}, 0.05)
    assert (answers["a"], answers["c"]) == ("A", "C")
    assert isinstance(answers["b"], Unanswered)
    assert patience.tried_for_s > 0
    hanging.go.set()


def test_who_hangs_is_not_asked_again_and_its_answer_counts_when_it_comes(
    patience: Patience,
) -> None:
    hanging = Hanging()
    for _ in range(3):
        with pytest.raises(Unanswered):
            patience.ask("a", hanging, 0.0)
    hanging.go.set()
    assert hanging.came_back.wait(LONG_S)
    while patience.tried_for_s:
        pass
    assert hanging.calls == 1
    assert patience.ask("a", lambda: "fresh", LONG_S) == "late"
    assert patience.ask("a", lambda: "fresh", LONG_S) == "fresh"


def test_answers_of_another_session_can_be_forgotten(patience: Patience) -> None:
    hanging = Hanging()
    with pytest.raises(Unanswered):
        patience.ask("a", hanging, 0.0)
    hanging.go.set()
    while patience.tried_for_s:
        pass
    patience.forget()
    assert patience.ask("a", lambda: "fresh", LONG_S) == "fresh"


def test_errors_are_those_of_the_call(patience: Patience) -> None:
    def lost() -> str:
        raise NvmlError("GPU", "lost", pynvml.NVML_ERROR_GPU_IS_LOST)

    def wrong() -> str:
        raise KeyError("GPU")

    with pytest.raises(NvmlError, match="lost"):
        patience.ask("a", lost, LONG_S)
    with pytest.raises(KeyError):
        patience.ask("a", wrong, LONG_S)


def test_one_thread_is_enough_for_those_that_answer(patience: Patience) -> None:
    threads = {patience.ask(str(number), threading.get_ident, LONG_S) for number in range(50)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads
