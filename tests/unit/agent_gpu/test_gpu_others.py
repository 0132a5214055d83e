"""GPUs that another plugin of the node advertises as well."""

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.sources import Holder
from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.others import Rival, find_rivals, gpu_named_in, was_given, withhold

A, B, C = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "abc")
NODE = Hardware(tuple(Gpu(uuid, index, "L4", 1 << 34) for index, uuid in enumerate((A, B, C))))
NVIDIA = "nvidia.com/gpu"


@pytest.mark.parametrize(
    "device_id", [A, f"{A}::3", f"{A}-12", f"MIG-{A}/1/0", A.upper(), f"node-7/{A}"]
)
def test_plugins_write_uuids_in_many_ways(device_id: str) -> None:
    assert gpu_named_in(device_id) == A


@pytest.mark.parametrize("device_id", ["", "0", "GPU-", "nvidia0", "MIG-1234", A[:-1]])
def test_other_ids_name_no_gpu(device_id: str) -> None:
    assert gpu_named_in(device_id) is None


def test_our_own_resources_and_strange_ones_are_no_rivals() -> None:
    advertised = {
        MEMORY_RESOURCE: [f"m-{A}-0"],
        COMPUTE_RESOURCE: [f"c-{A}-0"],
        "example.com/nic": ["eth0", "GPU-99999999-0000-0000-0000-000000000000"],
    }
    assert find_rivals(advertised, NODE) == ()


def test_only_gpus_listed_as_ours_stay_usable_beside_a_rival() -> None:
    rivals = find_rivals({NVIDIA: [f"{A}::0", f"{A}::1", B]}, NODE)
    assert rivals == (Rival(NVIDIA, frozenset({A, B})),)
    kept = withhold(NODE, rivals, Choice(ours=frozenset({"1"})))
    assert [gpu.unusable for gpu in kept.gpus] == [
        "another plugin advertises it as nvidia.com/gpu",
        "",
        "",
    ]
    text = rivals[0].describe(NODE, Choice(ours=frozenset({"1"})))
    assert f"0 ({A}), 1 ({B})" in text
    assert "Only those that the setting gpus lists are handed out here: 1." in text


def test_without_a_list_nothing_that_a_rival_has_is_handed_out() -> None:
    rivals = (Rival(NVIDIA, frozenset({A})),)
    assert [bool(gpu.unusable) for gpu in withhold(NODE, rivals, Choice()).gpus] == [1, 0, 0]
    assert "None of them is handed out here" in rivals[0].describe(NODE, Choice())


def test_a_broken_gpu_keeps_its_own_reason() -> None:
    broken = Hardware((Gpu(A, 0, "L4", 1 << 34, unusable="Xid 79"),))
    kept = withhold(broken, [Rival(NVIDIA, frozenset({A}))], Choice())
    assert kept.gpus[0].unusable == "Xid 79"


def test_without_rivals_nothing_changes() -> None:
    assert withhold(NODE, (), Choice()) == NODE


def held(resource: str, *device_ids: str) -> Holder:
    return Holder("uid-1", "main", resource, frozenset(device_ids))


def test_what_a_pod_has_through_another_plugin_was_given_to_it() -> None:
    assert was_given(A, [held(NVIDIA, f"{A}::3")], ())
    assert was_given(A, [held("example.com/nic", "eth0"), held(NVIDIA, B, A)], ())
    assert was_given(A, [held(NVIDIA, B)], ()) is False
    assert was_given(A, [held(MEMORY_RESOURCE, f"m-{A}-0")], ()) is False, "our own books tell that"
    assert was_given(A, [], ()) is False


def test_while_nobody_can_tell_only_gpus_without_a_rival_are_certainly_not_given() -> None:
    rivals = [Rival(NVIDIA, frozenset({A}))]
    assert was_given(A, None, rivals) is None
    assert was_given(B, None, rivals) is False
