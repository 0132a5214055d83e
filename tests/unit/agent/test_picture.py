from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.picture import Picture

FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(2))
BOTH = Hardware(
    tuple(Gpu(uuid, index, "A100", 1 << 36) for index, uuid in enumerate((FIRST, SECOND)))
)


class Watcher:
    def __init__(self, choice: Choice) -> None:
        self.shown: list[Hardware] = []
        self.told: list[tuple[str, str]] = []
        self.picture = Picture(
            choice, self.shown.append, lambda reason, text: self.told.append((reason, text))
        )

    def unusable(self) -> list[bool]:
        return [bool(gpu.unusable) for gpu in self.shown[-1].gpus]


def test_a_change_is_told_once():
    watcher = Watcher(Choice())
    watcher.picture.take_hardware(BOTH)
    watcher.picture.take_hardware(BOTH)
    assert watcher.shown == [BOTH]
    assert watcher.picture.hardware == BOTH


def test_a_gpu_that_another_plugin_advertises_is_not_ours_until_it_stops():
    watcher = Watcher(Choice())
    watcher.picture.take_hardware(BOTH)
    for _ in range(2):
        watcher.picture.take_advertised({"nvidia.com/gpu": [SECOND], "aliquot.dev/gpu-memory": []})
    assert watcher.unusable() == [False, True]
    ((reason, text),) = watcher.told
    assert reason == "GpuClaimedTwice"
    assert "nvidia.com/gpu" in text
    watcher.picture.take_advertised({})
    assert watcher.unusable() == [False, False]
    assert len(watcher.shown) == 3


def test_a_gpu_that_the_settings_list_is_ours_all_the_same():
    watcher = Watcher(Choice(ours=frozenset({SECOND})))
    watcher.picture.take_hardware(BOTH)
    watcher.picture.take_advertised({"nvidia.com/gpu": [FIRST, SECOND]})
    assert watcher.unusable() == [True, False]
