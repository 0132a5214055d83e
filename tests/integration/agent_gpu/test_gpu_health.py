"""What the agent sees of a node's GPUs through NVML, while they break and recover."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgpu.node import LIBRARIES
from tests.integration.agent_gpu.agent_program import Message, running
from tests.simulated import SimulatedNode, simulated_node

NVLINK, PCIE_SWITCH, NUMA, SYSTEM = 3, 2, 1, 0
ENDLESS_S = 1e9


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G,2xL4") as node:
        yield node


def unusable(picture: Message) -> list[str]:
    return [gpu["unusable"] for gpu in picture["gpus"]]


def test_the_inventory_is_what_nvml_shows(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env) as watcher:
        picture = watcher.until(bool)
    devices = node.snapshot().devices
    assert [gpu["uuid"] for gpu in picture["gpus"]] == [device.uuid for device in devices]
    first, third = picture["gpus"][0], picture["gpus"][2]
    assert first["model"] == "NVIDIA A100-SXM4-80GB"
    assert (first["index"], first["minor"], first["sms"], first["numa"]) == (0, 0, 108, 0)
    assert first["memory_bytes"] == devices[0].memory_bytes
    assert (third["model"], third["sms"], third["numa"]) == ("NVIDIA L4", 58, 1)
    assert picture["links"] == [
        [NVLINK, NVLINK, SYSTEM, SYSTEM],
        [NVLINK, NVLINK, SYSTEM, SYSTEM],
        [SYSTEM, SYSTEM, NVLINK, PCIE_SWITCH],
        [SYSTEM, SYSTEM, PCIE_SWITCH, NVLINK],
    ]
    assert picture["driver"] == "610.43.02"
    assert unusable(picture) == [""] * 4


def test_settings_say_which_gpus_are_ours(node: SimulatedNode) -> None:
    uuid = node.snapshot().devices[3].uuid
    with running(
        "watch_gpus.py", node.env, ours=["0", "2", uuid.upper(), "9"], others=["2"]
    ) as watcher:
        assert [gpu["index"] for gpu in watcher.until(bool)["gpus"]] == [0, 3]
        watcher.await_log("the settings name GPU 9, but there are: 0 (GPU-")


def test_an_xid_of_an_application_changes_nothing_but_its_count(node: SimulatedNode) -> None:
    uuid = node.snapshot().devices[1].uuid
    with running("watch_gpus.py", node.env) as watcher:
        watcher.until(bool)
        node.inject(1, "xid=31")
        watcher.await_log("Xid 31: a program used an address that is not its own (application)")
        node.inject(1, "lost")
        picture = watcher.until(lambda picture: unusable(picture)[1] != "")
        assert picture["xids"] == {f"{uuid} 31": 1}
        assert unusable(picture)[1] == "GPU is lost", "the Xid from before does not explain it"


def test_a_fatal_xid_withdraws_the_gpu_until_a_probe_passes(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env) as watcher:
        watcher.until(bool)
        node.inject(1, "xid=48")
        picture = watcher.until(lambda picture: "the driver asks" in unusable(picture)[1])
        assert unusable(picture) == [
            "",
            "Xid 48: an uncorrectable memory error; the driver asks for a reset of the GPU",
            "",
            "",
        ]
        node.inject(1, "clear")
        watcher.until(lambda picture: unusable(picture) == [""] * 4)


def test_a_passing_probe_alone_does_not_undo_an_xid_of_just_now(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env, quiet_s=ENDLESS_S) as watcher:
        watcher.until(bool)
        node.inject(0, "xid=62")
        watcher.until(lambda picture: unusable(picture)[0] != "")
        # Later probes see two more GPUs go and come; the first one stays withdrawn throughout.
        node.inject(2, "lost")
        picture = watcher.until(lambda picture: unusable(picture)[2] != "")
        assert unusable(picture)[0].startswith("Xid 62")
        node.inject(2, "clear")
        picture = watcher.until(lambda picture: unusable(picture)[2] == "")
        assert unusable(picture)[0].startswith("Xid 62")


def test_a_gpu_that_falls_off_the_bus_comes_back(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env) as watcher:
        watcher.until(bool)
        node.inject(1, "xid=79")
        picture = watcher.until(lambda picture: unusable(picture)[1] != "")
        assert unusable(picture)[1] == "Xid 79: the GPU has fallen off the bus"
        node.inject(1, "clear")
        watcher.until(lambda picture: unusable(picture) == [""] * 4)
        # Its events are heard again, too.
        node.inject(1, "xid=13")
        watcher.await_log("Xid 13")


def test_a_gpu_that_is_lost_from_the_start_appears_when_it_answers(node: SimulatedNode) -> None:
    node.inject(0, "lost")
    with running("watch_gpus.py", node.env) as watcher:
        assert [gpu["index"] for gpu in watcher.until(bool)["gpus"]] == [1, 2, 3]
        watcher.await_log("GPU 0 does not answer: GPU is lost")
        node.inject(0, "clear")
        picture = watcher.until(lambda picture: len(picture["gpus"]) == 4)
        assert [gpu["index"] for gpu in picture["gpus"]] == [0, 1, 2, 3]
        assert picture["links"][0][1] == NVLINK


def test_a_driver_that_comes_later_is_found(node: SimulatedNode, tmp_path: Path) -> None:
    """The agent may start before the driver's library is there at all."""
    env = {**node.env, "LD_LIBRARY_PATH": str(tmp_path)}
    with running("watch_gpus.py", env) as watcher:
        assert watcher.until(bool)["gpus"] == []
        watcher.await_log("libnvidia-ml.so.1 was not found")
        fresh = tmp_path / ".fresh"
        shutil.copy(LIBRARIES / "libnvidia-ml.so.1", fresh)
        fresh.rename(tmp_path / "libnvidia-ml.so.1")
        assert len(watcher.until(lambda picture: picture["gpus"] != [])["gpus"]) == 4


def test_others_are_watched_while_a_probe_hangs_in_the_driver(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env, hang_s=1.0, stop_s=0.1) as watcher:
        watcher.until(bool)
        node.inject(1, "nvml-slow=3600s")
        picture = watcher.until(lambda picture: unusable(picture)[1] != "")
        assert unusable(picture) == ["", "a probe has hung for 1 s", "", ""]
        node.inject(2, "xid=62")
        picture = watcher.until(lambda picture: unusable(picture)[2] != "")
        assert unusable(picture)[2].startswith("Xid 62")
        node.inject(3, "lost")
        picture = watcher.until(lambda picture: unusable(picture)[3] != "")
        assert unusable(picture)[3] == "GPU is lost", "and the others are still probed"
        node.inject(3, "clear")
        watcher.until(lambda picture: unusable(picture)[3] == "")
        assert watcher.end() == 0, "nor does the agent wait for the driver when it ends"


def test_one_gpu_that_hangs_from_the_start_does_not_take_the_node_down(
    node: SimulatedNode,
) -> None:
    node.inject(1, "nvml-slow=3600s")
    with running("watch_gpus.py", node.env, hang_s=1.0, stop_s=0.1) as watcher:
        picture = watcher.until(bool)
        assert [gpu["index"] for gpu in picture["gpus"]] == [0, 2, 3]
        assert unusable(picture) == [""] * 3
        watcher.await_log("GPU 1 does not answer: the driver does not come back")
        node.inject(3, "lost")
        watcher.until(lambda picture: unusable(picture)[2] == "GPU is lost")


def test_stopping_ends_the_thread_and_the_session(node: SimulatedNode) -> None:
    with running("watch_gpus.py", node.env) as watcher:
        watcher.until(bool)
        assert watcher.end() == 0
        assert not any("Traceback" in line for line in watcher.log)
