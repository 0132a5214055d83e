"""The command around the story: exit codes, and that everything ends whatever happens."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest

from aliquot.errors import OperationError
from simcluster.demo import command, promises
from simcluster.demo.promises import Promise

KEPT = promises.keeps_share("train", "compute share", 60, 60.0, 1)
BROKEN = promises.keeps_share("train", "compute share", 60, 70.0, 1)
OPTIONS = Namespace(keep=False, svg=None)


class Stage:
    """Stands for the cluster, its account and the story at once."""

    def __init__(self, play: Callable[[], list[Promise]]) -> None:
        self.play = play
        self.stopped = 0
        self.gpus = None

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped += 1

    def live(self) -> dict[str, Any]:
        return {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], list[Promise]]], Stage]:
    def put(play: Callable[[], list[Promise]]) -> Stage:
        made = Stage(play)
        for name in ("Cluster", "Account", "Story"):
            monkeypatch.setattr(command, name, lambda *_: made)
        return made

    return put


def test_all_promises_kept_is_exit_code_0(stage: Any, capsys: pytest.CaptureFixture[str]):
    made = stage(lambda: [KEPT, KEPT])
    assert command.run(OPTIONS) == 0
    assert "All 2 promises were kept." in capsys.readouterr().out
    assert made.stopped == 1


def test_one_broken_promise_is_exit_code_1_and_is_named(
    stage: Any, capsys: pytest.CaptureFixture[str]
):
    made = stage(lambda: [KEPT, BROKEN])
    assert command.run(OPTIONS) == 1
    told = capsys.readouterr().out
    assert "1 of 2 promises were broken." in told
    assert "BROKEN" in told
    assert made.stopped == 1


@pytest.mark.parametrize("error", [OperationError("the agent has ended"), KeyboardInterrupt()])
def test_what_ends_the_story_early_ends_everything(stage: Any, error: BaseException):
    def play() -> list[Promise]:
        raise error

    made = stage(play)
    with pytest.raises(type(error)):
        command.run(OPTIONS)
    assert made.stopped == 1
