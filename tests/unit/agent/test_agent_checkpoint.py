import json
from pathlib import Path

import pytest

from deviceplugin.booking import checkpoint
from deviceplugin.booking.sources import Holder
from tests.unit.agent.agent_node import COMPUTE, MEMORY, uuid


def _entry(device_ids: object) -> dict[str, object]:
    return {
        "PodUID": "u",
        "ContainerName": "c",
        "ResourceName": MEMORY,
        "DeviceIDs": device_ids,
        "AllocResp": "Cg==",
    }


def _content(*entries: object) -> bytes:
    data = {"PodDeviceEntries": list(entries), "RegisteredDevices": {MEMORY: []}}
    return json.dumps({"Data": data, "Checksum": 42}).encode()


@pytest.mark.parametrize(
    "device_ids",
    [
        {"-1": [f"m-{uuid(1)}-0", f"m-{uuid(1)}-1"]},
        {"0": [f"m-{uuid(1)}-0"], "1": [f"m-{uuid(1)}-1"]},
        [f"m-{uuid(1)}-0", f"m-{uuid(1)}-1"],
    ],
)
def test_every_versions_form_of_ids_is_read(device_ids: object) -> None:
    wanted = Holder("u", "c", MEMORY, frozenset({f"m-{uuid(1)}-0", f"m-{uuid(1)}-1"}))
    assert checkpoint.parse(_content(_entry(device_ids))) == [wanted]


def test_with_an_id_only_containers_that_hold_it_are_read() -> None:
    one, other = [f"m-{uuid(1)}-{number}" for number in (1, 2)]
    longer = f"m-{uuid(1)}-11"
    entries = [
        {**_entry({"-1": [one]}), "PodUID": "init"},
        {**_entry({"-1": [other, one]}), "PodUID": "app"},
        {**_entry({"-1": [f"c-{uuid(1)}-5"]}), "PodUID": "app", "ResourceName": COMPUTE},
        {**_entry({"-1": [f"c-{uuid(1)}-6"]}), "PodUID": "app", "ContainerName": "beside"},
        {**_entry({"-1": [longer]}), "PodUID": "longer"},
    ]
    assert checkpoint.parse(_content(*entries), one) == [
        Holder("init", "c", MEMORY, frozenset({one})),
        Holder("app", "c", MEMORY, frozenset({one, other})),
        Holder("app", "c", COMPUTE, frozenset({f"c-{uuid(1)}-5"})),
    ]
    assert checkpoint.parse(_content(*entries), f"m-{uuid(1)}-3") == []


def test_a_kubelet_that_never_allocated_anything_has_no_entries(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path / "none") == []
    assert checkpoint.parse(b'{"Data":{"PodDeviceEntries":null},"Checksum":1}') == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"[]",
        b"{}",
        b'{"Data": 3}',
        b'{"Data": {"PodDeviceEntries": 3}}',
        b'{"Data": {"PodDeviceEntries": [3]}}',
        b'{"Data": {"PodDeviceEntries": [{}]}}',
        b"[" * 100_000,
        _content(_entry({"0": [3]})),
        _content(_entry("m")),
        _content({**_entry([]), "PodUID": None}),
        _content(_entry([]))[:-20],
    ],
)
def test_garbage_is_refused_with_the_files_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(content)
    with pytest.raises(checkpoint.CheckpointError, match="kubelet_internal_checkpoint"):
        checkpoint.read(path)


def test_an_unreadable_checkpoint_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.read(tmp_path)
