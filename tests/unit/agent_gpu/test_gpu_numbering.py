"""A number in the settings means one GPU for good, whatever NVML calls it later."""

from pathlib import Path

import pytest

from deviceplugin.gpus.inventory import Choice
from tests.unit.agent_gpu.test_gpu_watch import Driver, Watched, make

LEFT = Choice(others=frozenset({"2"}))


class Node:
    """Its GPUs come and go; agents on it are started one after the other."""

    def __init__(self, folder: Path, *gpus: str) -> None:
        self.folder = folder
        self.driver = Driver(gpus=list(gpus))
        self.changes = 0

    def start(self, choice: Choice = LEFT) -> Watched:
        self.driver.close()
        return make(self.folder, choice, self.driver, self.folder / "gpu-numbers")

    def has(self, *gpus: str) -> None:
        """From now on; the kernel says so, too."""
        self.driver.gpus[:] = gpus
        self.changes += 1
        (self.folder / "gpus" / f"0000:0{self.changes}:00.0").mkdir(parents=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "GPU-a", "GPU-b", "GPU-c")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_gpu_that_is_left_by_number_stays_left_when_another_vanishes(
    node: Node, is_restarted: bool
) -> None:
    agent = node.start()
    assert agent.look().keys() == {"GPU-a", "GPU-b"}
    node.has("GPU-a", "GPU-c")
    if is_restarted:
        agent = node.start()
    assert "GPU-c" not in agent.look()
    assert agent.look()["GPU-a"] == ""


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_others_stay_ours_when_the_one_that_is_left_vanishes(
    node: Node, is_restarted: bool
) -> None:
    agent = node.start()
    agent.look()
    node.has("GPU-a", "GPU-b")
    if is_restarted:
        agent = node.start()
    assert agent.look() == {"GPU-a": "", "GPU-b": ""}


@pytest.mark.parametrize(
    "gpus",
    [
        ("GPU-a", "GPU-b", "GPU-x"),  # in the place of the one that is left to others
        ("GPU-a", "GPU-c", "GPU-x"),  # behind it, while another is missing
        ("GPU-a", "GPU-x", "GPU-b", "GPU-c"),  # between them
    ],
)
def test_a_new_gpu_whose_number_may_be_anothers_is_left_out_with_the_remedy(
    node: Node, gpus: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    agent = node.start()
    agent.look()
    node.has(*gpus)
    seen = agent.look()
    assert seen.keys() == {"GPU-a", "GPU-b"}
    assert "(GPU-x) is left out" in caplog.text
    assert f"write uuids there, or remove {node.folder / 'gpu-numbers'}" in caplog.text


def test_on_other_hardware_numbers_mean_what_is_there(node: Node) -> None:
    """A virtual machine that was stopped and started has other GPUs, and the same disk."""
    node.start().look()
    node.has("GPU-x", "GPU-y", "GPU-z")
    agent = node.start()
    assert agent.look() == {"GPU-x": "", "GPU-y": ""}


def test_where_nobody_can_tell_whether_any_gpu_is_ours_that_is_a_fault(node: Node) -> None:
    node.has("GPU-c")
    first = node.start(Choice(others=frozenset({"0"})))
    first.look()
    node.has("GPU-new", "GPU-c")
    agent = node.start(Choice(others=frozenset({"0"})))
    assert "GPU-new" not in agent.look()
    absence = agent.watch.absence
    assert absence is not None
    assert absence.is_fault
    assert "write uuids there" in absence.why


def test_a_new_gpu_that_the_settings_name_by_uuid_is_taken(node: Node) -> None:
    agent = node.start(Choice(ours=frozenset({"0", "GPU-x"})))
    agent.look()
    node.has("GPU-a", "GPU-x")
    assert agent.look().keys() == {"GPU-a", "GPU-x"}


def test_a_gpu_that_is_added_behind_the_others_is_taken(node: Node) -> None:
    agent = node.start()
    agent.look()
    node.has("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    assert agent.look().keys() == {"GPU-a", "GPU-b", "GPU-d"}


def test_one_that_is_silent_keeps_its_place(node: Node) -> None:
    node.driver.lost.add("GPU-a")
    agent = node.start()
    assert agent.look().keys() == {"GPU-b"}
    node.driver.lost.clear()
    assert agent.look().keys() == {"GPU-a", "GPU-b"}


def test_without_numbers_in_the_settings_nothing_is_kept(node: Node) -> None:
    node.start().look()
    kept = node.folder / "gpu-numbers"
    assert kept.exists()
    agent = node.start(Choice(others=frozenset({"GPU-c"})))
    assert agent.look().keys() == {"GPU-a", "GPU-b"}
    assert not kept.exists()
    node.has("GPU-x", "GPU-a", "GPU-b", "GPU-c")
    assert agent.look().keys() == {"GPU-a", "GPU-b", "GPU-x"}


def test_a_damaged_file_is_told_and_written_anew(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    kept = node.folder / "gpu-numbers"
    kept.write_text("[1")
    assert node.start().look().keys() == {"GPU-a", "GPU-b"}
    assert str(kept) in caplog.text
    node.has("GPU-a", "GPU-c")
    assert node.start().look().keys() == {"GPU-a"}
