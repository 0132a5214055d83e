import json
import os
from pathlib import Path

import pytest

from deviceplugin.booking import checkpoint
from deviceplugin.booking.sources import Holder
from tests.unit.agent.agent_node import COMPUTE, MEMORY, uuid


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / checkpoint.FILE_NAME


def _replace(file: Path, content: bytes) -> None:
    """As the kubelet does."""
    fresh = file.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(file)


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
def test_every_versions_form_of_ids_is_read(file: Path, device_ids: object) -> None:
    wanted = Holder("u", "c", MEMORY, frozenset({f"m-{uuid(1)}-0", f"m-{uuid(1)}-1"}))
    file.write_bytes(_content(_entry(device_ids)))
    assert checkpoint.Reader(file).read() == [wanted]


def test_what_is_as_before_is_the_same_object_and_what_is_not_is_read_anew(file: Path) -> None:
    first, second = [f"m-{uuid(1)}-{number}" for number in (1, 2)]
    stays, goes = {**_entry([first]), "PodUID": "stays"}, {**_entry([second]), "PodUID": "goes"}
    changes, changed = {**_entry([second]), "PodUID": "old"}, {**_entry([first]), "PodUID": "old"}
    reader = checkpoint.Reader(file)
    _replace(file, _content(stays, goes, changes))
    before = reader.read()
    assert reader.read() is before

    _replace(file, _content(changed, stays))
    after = reader.read()
    assert after == [
        Holder("old", "c", MEMORY, frozenset({first})),
        Holder("stays", "c", MEMORY, frozenset({first})),
    ]
    assert after[1] is before[0]

    file.unlink()
    assert reader.read() == []


def _holder(pod: str) -> Holder:
    return Holder(pod, "c", MEMORY, frozenset({"m"}))


def _of(pod: str) -> bytes:
    """As long for each pod of a letter."""
    return _content({**_entry(["m"]), "PodUID": pod})


@pytest.mark.parametrize("same", ["time", "inode"])
def test_a_new_file_of_the_same_length_is_read(file: Path, same: str) -> None:
    """Two are written within a tick of the clock, or the number of a removed one is used again."""
    reader = checkpoint.Reader(file)
    _replace(file, _of("a"))
    assert reader.read() == [_holder("a")]
    before = file.stat()
    if same == "time":
        _replace(file, _of("b"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_ino != before.st_ino
    else:
        file.write_bytes(_of("b"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert file.stat().st_ino == before.st_ino
    assert reader.read() == [_holder("b")]


def test_what_is_written_while_it_is_read_is_read_the_next_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = checkpoint.Reader(file)
    _replace(file, _of("a"))
    read = Path.read_bytes

    def read_slowly(path: Path) -> bytes:
        content = read(path)
        _replace(file, _of("b"))
        return content

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_slowly)
        assert reader.read() == [_holder("a")]
    assert reader.read() == [_holder("b")]


def test_after_garbage_it_reads_on(file: Path) -> None:
    reader = checkpoint.Reader(file)
    for content in (_content(_entry(["m"])), b"{", _content(_entry(["m"]))):
        _replace(file, content)
        if content == b"{":
            for _ in range(2):
                with pytest.raises(checkpoint.CheckpointError):
                    reader.read()
        else:
            assert reader.read() == [Holder("u", "c", MEMORY, frozenset({"m"}))]


def test_with_an_id_only_containers_that_hold_it_are_read(file: Path) -> None:
    one, other = [f"m-{uuid(1)}-{number}" for number in (1, 2)]
    longer = f"m-{uuid(1)}-11"
    entries = [
        {**_entry({"-1": [one]}), "PodUID": "init"},
        {**_entry({"-1": [other, one]}), "PodUID": "app"},
        {**_entry({"-1": [f"c-{uuid(1)}-5"]}), "PodUID": "app", "ResourceName": COMPUTE},
        {**_entry({"-1": [f"c-{uuid(1)}-6"]}), "PodUID": "app", "ContainerName": "beside"},
        {**_entry({"-1": [longer]}), "PodUID": "longer"},
    ]
    file.write_bytes(_content(*entries))
    assert checkpoint.holders_of(file, one) == [
        Holder("init", "c", MEMORY, frozenset({one})),
        Holder("app", "c", MEMORY, frozenset({one, other})),
        Holder("app", "c", COMPUTE, frozenset({f"c-{uuid(1)}-5"})),
    ]
    assert checkpoint.holders_of(file, f"m-{uuid(1)}-3") == []


def test_a_kubelet_that_never_allocated_anything_has_no_entries(file: Path) -> None:
    assert checkpoint.Reader(file).read() == []
    file.write_bytes(b'{"Data":{"PodDeviceEntries":null},"Checksum":1}')
    assert checkpoint.Reader(file).read() == []


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
def test_garbage_is_refused_with_the_files_name(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(checkpoint.CheckpointError, match="kubelet_internal_checkpoint"):
        checkpoint.Reader(file).read()


def test_an_unreadable_checkpoint_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.Reader(tmp_path).read()


def test_what_one_pod_holds_is_told_of_all_plugins(file: Path) -> None:
    other = {**_entry(["GPU-1::3"]), "ResourceName": "nvidia.com/gpu"}
    file.write_bytes(_content(_entry(["one"]), other, {**other, "PodUID": "another"}))
    assert checkpoint.holders_in(file, "u") == [
        Holder("u", "c", MEMORY, frozenset({"one"})),
        Holder("u", "c", "nvidia.com/gpu", frozenset({"GPU-1::3"})),
    ]
    assert checkpoint.holders_in(file, "nobody") == []
