"""The GPUs as the agent's parts see them, while others claim some of them."""

import pytest

from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.picture import Picture

A, B = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
NODE = Hardware((Gpu(A, 0, "L4", 1 << 34), Gpu(B, 1, "L4", 1 << 34)))
NVIDIA = "nvidia.com/gpu"


class Scene:
    def __init__(self, choice: Choice | None = None) -> None:
        self.published: list[Hardware] = []
        self.told: list[tuple[str, str]] = []
        self.fails = False
        self.advertised: dict[str, list[str]] | None = None
        """What a look at the kubelet finds; None: it does not answer."""
        self.picture = Picture(
            choice or Choice(),
            self._publish,
            lambda *event: self.told.append(event),
            lambda: self.advertised,
        )

    def _publish(self, hardware: Hardware) -> None:
        self.published.append(hardware)
        if self.fails:
            raise OSError("no room on the disk")

    @property
    def usable(self) -> list[bool]:
        return [not gpu.unusable for gpu in self.published[-1].gpus]


def test_a_rival_is_told_once_and_withholds_its_gpus_as_long_as_it_is_there() -> None:
    scene = Scene()
    scene.picture.take_hardware(NODE)
    for _ in range(3):
        scene.picture.take_advertised({NVIDIA: [A]})
    assert scene.usable == [False, True]
    assert [reason for reason, _ in scene.told] == ["GpuClaimedTwice"]
    assert [rival.resource for rival in scene.picture.rivals] == [NVIDIA]
    scene.picture.take_advertised({})
    assert scene.usable == [True, True]
    scene.picture.take_advertised({NVIDIA: [A]})
    assert len(scene.told) == 2


def test_news_of_the_hardware_keep_what_is_known_of_rivals() -> None:
    scene = Scene(Choice(ours=frozenset({B})))
    scene.picture.take_hardware(NODE)
    scene.picture.take_advertised({NVIDIA: [A, B]})
    assert scene.usable == [False, True]
    broken = Hardware((NODE.gpus[0], Gpu(B, 1, "L4", 1 << 34, unusable="Xid 79")))
    scene.picture.take_hardware(broken)
    assert scene.usable == [False, False]
    scene.picture.take_hardware(NODE)
    assert scene.usable == [False, True]


def test_a_gpu_that_appears_after_its_rival_was_seen_is_withheld_at_once() -> None:
    scene = Scene()
    scene.picture.take_hardware(Hardware(NODE.gpus[1:]))
    scene.picture.take_advertised({NVIDIA: [A]})
    scene.picture.take_hardware(NODE)
    assert scene.usable == [False, True]
    assert [rival.resource for rival in scene.picture.rivals] == [NVIDIA]
    assert [reason for reason, _ in scene.told] == ["GpuClaimedTwice"]


def test_others_are_looked_at_before_a_new_gpu_is_shown() -> None:
    scene = Scene()
    scene.advertised = {NVIDIA: [A]}
    scene.picture.take_hardware(NODE)
    assert [gpu.unusable for gpu in scene.published[0].gpus] == [
        f"another plugin advertises it as {NVIDIA}",
        "",
    ]
    scene.advertised = {}
    scene.picture.take_hardware(NODE)
    assert scene.usable == [False, True], "nothing is new, so nobody was asked"


def test_what_could_not_be_published_is_published_again() -> None:
    scene = Scene()
    scene.fails = True
    with pytest.raises(OSError, match="no room"):
        scene.picture.take_hardware(NODE)
    scene.fails = False
    scene.picture.take_hardware(NODE)
    scene.picture.take_hardware(NODE)
    assert scene.published == [NODE, NODE]
    assert scene.picture.hardware == NODE
