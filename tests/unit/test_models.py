"""What hardware a user can ask for, and what the answer to a mistake says."""

import contextlib
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu.models import MAX_GPUS, MODELS, GpuProfile, SpecError, parse_spec

# A machine that is busy with something else is no reason to fail.
AT_LEISURE = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

LAYOUT = Path(__file__).parents[2] / "simgpu/src/core/state_layout.h"


def test_a_spec_lists_counts_and_models_in_order():
    names = [gpu.name for gpu in parse_spec("2xA100-80G, 1xL4,T4")]
    assert names == ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "Tesla T4"]


def test_profiles_have_the_fields_of_the_shared_struct():
    struct = re.search(r"struct sim_profile \{(.*?)\n\};", LAYOUT.read_text(), re.S)
    assert struct is not None
    in_c = re.findall(r"(\w+)(?:\[\w+\])?;", struct[1])
    assert [field.name for field in fields(GpuProfile)] == [n for n in in_c if n != "reserved"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("a100-80gb", "A100-80G"), ("RTX4090", "RTX-4090"), ("rtx6000ada", "RTX-6000-ADA")],
)
def test_usual_spellings_of_a_model_are_understood(written: str, meant: str):
    assert parse_spec(written)[0].name == MODELS[meant].name


@pytest.mark.parametrize("key", MODELS)
def test_every_model_is_a_gpu_that_the_state_file_can_hold(key: str):
    gpu = parse_spec(key)[0]
    assert 0 < gpu.context_bytes < gpu.memory_bytes < 2**40
    assert len(gpu.name) < 96
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
    assert gpu.pci_device_id & 0xFFFF == 0x10DE
    assert min(gpu.sm_count, gpu.sm_clock_mhz, gpu.power_limit_watts, gpu.memory_bus_bits) > 0


def test_sizes_are_those_of_the_real_boards():
    sizes = {key: parse_spec(key)[0].memory_bytes >> 20 for key in ("A100-80G", "T4", "H100-80G")}
    assert sizes == {"A100-80G": 81920, "T4": 15360, "H100-80G": 81559}


def test_uuids_depend_on_seed_and_position_only():
    first, again = parse_spec("4xL4"), parse_spec("4xL4")
    assert [gpu.uuid for gpu in first] == [gpu.uuid for gpu in again]
    assert len({gpu.uuid for gpu in first} | {g.uuid for g in parse_spec("4xL4", "other")}) == 8


def test_sxm_boards_reach_each_other_over_all_links_of_the_switch():
    gpus = parse_spec("8xH100-80G")
    for index, gpu in enumerate(gpus):
        assert gpu.nvlinks[:8] == tuple(0 if peer == index else 18 for peer in range(8))
        assert gpu.nvlinks[8:] == (0,) * 8


def test_links_join_one_model_only():
    gpus = parse_spec("2xA100-80G,2xA100-40G,1xL4")
    assert gpus[0].nvlinks[:5] == (0, 12, 0, 0, 0)
    assert gpus[3].nvlinks[:5] == (0, 0, 12, 0, 0)
    assert not any(gpus[4].nvlinks)


@pytest.mark.parametrize(
    ("count", "numa_nodes", "switches"),
    [
        (1, [0], [0]),
        (2, [0, 0], [0, 0]),
        (3, [0, 0, 1], [0, 0, 1]),
        (8, [0] * 4 + [1] * 4, [0, 0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_pairs_share_a_switch_and_half_the_switches_a_numa_node(
    count: int, numa_nodes: list[int], switches: list[int]
):
    gpus = parse_spec(f"{count}xL40S")
    assert [gpu.numa_node for gpu in gpus] == numa_nodes
    assert [gpu.pcie_switch for gpu in gpus] == switches


@AT_LEISURE
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(list(MODELS))), min_size=1, max_size=6)
)
def test_any_readable_spec_gives_distinct_gpus_or_is_too_large(items: list[tuple[int, str]]):
    spec = ",".join(f"{count}x{key}" for count, key in items)
    wanted = sum(count for count, _ in items)
    if wanted > MAX_GPUS:
        with pytest.raises(SpecError, match="1 to 16"):
            parse_spec(spec)
        return
    gpus = parse_spec(spec)
    assert len(gpus) == wanted
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.pci_bus for gpu in gpus}) == wanted
    for index, gpu in enumerate(gpus):
        assert all(
            gpus[peer].nvlinks[index] == links for peer, links in enumerate(gpu.nvlinks) if links
        )


@AT_LEISURE
@given(st.text())
def test_any_other_text_is_refused_in_words(text: str):
    with contextlib.suppress(SpecError):
        assert 1 <= len(parse_spec(text)) <= MAX_GPUS


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "known models: V100-16G"),
        ("2xA100", "did you mean A100-40G or A100-80G or"),
        ("2xH10-80G", "did you mean H100-80G?"),
        ("0xL4", "asks for no GPU at all"),
        ("17xL4", "more than 16 GPUs"),
        ("8xL4,8xT4,1xL4", "more than 16 GPUs"),
        ("2xL4,,T4", "cannot read `` in"),
        ("-1xL4", "cannot read `-1xL4`"),
        ("999999999999999999999xL4", "more than 16 GPUs"),
        ("2 L4", "cannot read `2 L4`"),
    ],
)
def test_a_refused_spec_says_what_to_write(spec: str, says: str):
    with pytest.raises(SpecError, match=re.escape(says)):
        parse_spec(spec)


def hardware(tmp_path: Path, text: str, name: str = "node.toml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_a_file_changes_ready_made_models(tmp_path: Path):
    gpus = parse_spec(
        hardware(
            tmp_path,
            """
            [[gpu]]
            model = "A100-80G"
            count = 2
            memory_bytes = 42949672960
            [[gpu]]
            model = "L4"
            name = "Experimental"
            uuid = "GPU-00000000-1111-2222-3333-444444444444"
            numa_node = -1
            """,
        )
    )
    assert [gpu.memory_bytes >> 30 for gpu in gpus] == [40, 40, 22]
    assert gpus[0].nvlinks[:3] == (0, 12, 0)
    assert (gpus[2].name, gpus[2].numa_node) == ("Experimental", -1)
    assert gpus[2].uuid == "GPU-00000000-1111-2222-3333-444444444444"


def test_a_json_file_says_the_same(tmp_path: Path):
    described = {"seed": "x", "gpu": [{"model": "T4", "count": 3}]}
    text = json.dumps(described)
    assert parse_spec(hardware(tmp_path, text, "node.json")) == parse_spec("3xT4", "x")


def test_direct_links_can_be_written_down(tmp_path: Path):
    text = """
    [[gpu]]
    model = "V100-16G"
    nvlinks = [0, 2, 1]
    [[gpu]]
    model = "V100-16G"
    nvlinks = [2]
    [[gpu]]
    model = "V100-16G"
    nvlinks = [1]
    """
    gpus = parse_spec(hardware(tmp_path, text))
    assert [gpu.nvlinks[:3] for gpu in gpus] == [(0, 2, 1), (2, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[gpu]]\nmodel = "L4"\ncount =', "cannot be read: Invalid value"),
        ('[[gpu]]\nmodel = "L4\n', "line 2"),
        ('[[gpu]]\nmodel = "L4"\nmemroy_bytes = 1', "line 3, gpu number 1: unknown key `memroy_by"),
        ('[[gpu]]\nmodel = "L4"\n[[gpu]]\nmodel = "L5"', "line 4, gpu number 2: no GPU model `L5`"),
        ("[[gpu]]\nmemory_bytes = 5", "needs a `model`"),
        ('[[gpu]]\nmodel = "L4"\ncount = 17', "line 3, gpu number 1: count must be 1 to 16"),
        ('[[gpu]]\nmodel = "L4"\ncount = true', "count must be 1 to 16, not True"),
        ('[[gpu]]\nmodel = "L4"\nsm_count = 0', "sm_count must be a whole number from 1"),
        ('[[gpu]]\nmodel = "L4"\nsm_count = 2.5', "not 2.5"),
        ('[[gpu]]\nmodel = "L4"\nname = ""', "name must be text of 1 to 95 bytes"),
        ('[[gpu]]\nmodel = "L4"\nuuid = "GPU-1"', "uuid must look like GPU-00000000-"),
        ('[[gpu]]\nmodel = "L4"\ncount = 2\nuuid = "GPU-1"', "uuid is for one GPU"),
        ('[[gpu]]\nmodel = "L4"\nmemory_bytes = 1000', "leaves nothing of memory_bytes"),
        ('[[gpu]]\nmodel = "L4"\nnvlinks = [0, 1]', "GPU 1, which is not another GPU"),
        (
            '[[gpu]]\nmodel = "V100-16G"\nnvlinks = [0, 2]\n[[gpu]]\nmodel = "L4"',
            "line 3, gpu number 1: GPU 0 has 2 links to GPU 1, but that has 0 back",
        ),
        (
            '[[gpu]]\nmodel = "L4"\npci_bus = 3\n[[gpu]]\nmodel = "L4"\npci_bus = 3',
            "line 6, gpu number 2: PCI bus 3 is used twice",
        ),
        ('[[gpu]]\nmodel = "L4"\ncount = 9\n[[gpu]]\nmodel = "T4"\ncount = 9', "has 18 GPUs"),
        ('gpus = "2xL4"', "line 1: unknown key `gpus`; did you mean `gpu`?"),
        ("seed = 7", "line 1: seed must be text"),
        ("", "describes no GPU"),
        ("gpu = [3]", "gpu number 1: must be a table"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path: Path, text: str, says: str):
    with pytest.raises(SpecError, match=re.escape(says)) as refusal:
        parse_spec(hardware(tmp_path, text))
    assert "node.toml" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "line 1 column 2"), ("[]", "must be one object"), ('{"gpu": {}}', "describes no GPU")],
)
def test_a_bad_json_file_is_refused_with_the_place(tmp_path: Path, text: str, says: str):
    with pytest.raises(SpecError, match=re.escape(says)):
        parse_spec(hardware(tmp_path, text, "node.json"))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(SpecError, match=r"cannot read the hardware file .*absent\.toml"):
        parse_spec(str(tmp_path / "absent.toml"))
