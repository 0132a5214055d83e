"""What a pod's manifest asks for is read exactly, or refused with how to write it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.protocol import names
from aliquot.protocol.request import (
    MOST_GPUS,
    PodRequest,
    RequestError,
    Role,
    Selection,
    read_request,
)

MANY = ",".join(f"{'!' * (number % 2)}A{number}" for number in range(101))


def asked(memory: str | None = None, compute: str | None = None, **annotations: str) -> PodRequest:
    """One container `main`; annotations by their name without the domain, `_` for `-`."""
    limits = {names.MEMORY_RESOURCE: memory, names.COMPUTE_RESOURCE: compute}
    given_limits = {resource: text for resource, text in limits.items() if text is not None}
    ours = {f"{names.DOMAIN}/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return read_request(ours, [("main", given_limits, Role.APP)])


def test_a_plain_request_has_the_defaults_of_the_node_and_the_cluster():
    request = asked(memory="16", compute="30")
    (container,) = request.containers
    assert (container.memory_units, container.compute_percent) == (16, 30)
    assert (request.policy, request.placement, request.group) == (None, None, None)
    assert (request.gpus, request.weight, request.shim_off) == (1, 1, False)


def test_containers_that_ask_for_nothing_of_ours_are_left_out_and_roles_are_kept():
    ours = {names.MEMORY_RESOURCE: "4", names.COMPUTE_RESOURCE: "10"}
    request = read_request(
        {},
        [
            ("prepare", ours, Role.INIT),
            ("proxy", {"cpu": "100m"}, Role.SIDECAR),
            ("zero", {names.MEMORY_RESOURCE: "0"}, Role.APP),
            ("main", ours, Role.APP),
        ],
    )
    assert [(each.name, each.role) for each in request.containers] == [
        ("prepare", Role.INIT),
        ("main", Role.APP),
    ]


@pytest.mark.parametrize(
    ("compute", "memory", "gpus", "expected_gpus", "whole"),
    [
        ("30", "16", None, 1, False),
        ("100", None, None, 1, True),
        ("300", None, None, 3, True),
        ("200", "32", None, 2, False),
        ("60", "16", "2", 2, False),
        ("200", None, "2", 2, True),
        ("100", None, "2", 2, False),
    ],
)
def test_whole_gpus_are_hundreds_without_memory(compute, memory, gpus, expected_gpus, whole):
    annotations = {} if gpus is None else {"gpus": gpus}
    request = asked(memory=memory, compute=compute, **annotations)
    (container,) = request.containers
    assert request.gpus_of(container) == expected_gpus
    assert request.is_whole(container) is whole


@pytest.mark.parametrize(
    ("request_of", "text"),
    [
        (lambda: asked(compute="150"), "no multiple of 100; ask for whole GPUs"),
        (lambda: asked(compute="250", gpus="2"), "2 GPUs have 200 percent, 250 were asked"),
        (lambda: asked(compute="0.5"), "write it like 30 for 30 percent"),
        (lambda: asked(compute="-5"), "must be a whole number"),
        (lambda: asked(memory="500m"), "write it like 4Gi or 16"),
        (lambda: asked(memory="4GB"), "is not a quantity; write it like 4Gi"),
        (lambda: asked(memory="9" * 5000), "must be a whole number"),
        (lambda: asked(memory="1e999"), "must be a whole number"),
        (lambda: asked(memory="15", compute="30", gpus="2"), "ask for a multiple of 2"),
        (lambda: asked(memory="16", compute="31", gpus="2"), "31 percent cannot be split"),
        (lambda: asked(compute="1700"), "17 whole GPUs, a container can have 16 at most"),
        (lambda: asked(compute="30", gpus="0"), "from 1 to 16, not '0'"),
        (lambda: asked(compute="30", gpus="-1"), "from 1 to 16, not '-1'"),
        (lambda: asked(compute="30", gpus="1.5"), "from 1 to 16, not '1.5'"),
        (lambda: asked(compute="30", gpus=""), "from 1 to 16, not ''"),
        (lambda: asked(compute="30", gpus="two"), "must be a whole number"),
        (lambda: asked(compute="30", gpus="9" * 5000), "must be a whole number"),
        (lambda: asked(compute="30", gpus="²"), "must be a whole number"),
        (lambda: asked(compute="30", compute_policy="greedy"), "fixed, burst, best-effort"),
        (lambda: asked(compute="30", placement="best"), "pack, spread, fragmentation"),
        (lambda: asked(compute="30", shim="no"), "one of on, off"),
        (lambda: asked(compute="30", compute_weight="0"), "from 1 to 1000"),
        (lambda: asked(compute="30", compute_weight="heavy"), "from 1 to 1000"),
        (lambda: asked(compute="30", gpu_model="A100,!A100"), "both wants and excludes 'A100'"),
        (lambda: asked(compute="30", gpu_model="A100,!a100"), "excludes it by 'a100'"),
        (lambda: asked(compute="30", gpu_model="L4,H100 PCIe,!H100"), "excludes it by 'H100'"),
        (lambda: asked(compute="30", gpu_model=MANY), "names more than 100 models; name fewer"),
        (lambda: asked(compute="30", gpu_uuid="GPU-1,!GPU-1"), "both wants and excludes 'GPU-1'"),
        (lambda: asked(compute="30", gpu_model="!"), "names nothing"),
        (lambda: asked(compute="30", gpu_model="A100,-"), "'-' names nothing"),
        (lambda: asked(compute="30", gpu_model=",,,"), "or leave it out for any GPU"),
        (lambda: asked(compute="30", gpu_model="  "), "write it like A100,H100 or !T4"),
        (lambda: asked(compute="30", gpu_uuid=","), "names nothing; write it like GPU-8f6c2a31"),
        (lambda: asked(compute="30", gpu_uuid="!!GPU-1"), "'!!GPU-1' names nothing"),
        (lambda: asked(compute="200", gpu_uuid="GPU-1,GPU-1"), "names only 1; name at least 2"),
        (lambda: asked(compute="200", gpu_uuid="GPU-1"), "name at least 2"),
        (lambda: asked(compute="30", group="train"), "needs aliquot.dev/group-size beside it"),
        (lambda: asked(compute="30", group_size="4"), "needs aliquot.dev/group beside it"),
        (lambda: asked(compute="30", group="Train it", group_size="4"), "lower-case letters"),
        (lambda: asked(compute="30", group="train", group_size="0"), "from 1 to 256"),
        (lambda: asked(compute="30", group="train", group_size="257"), "from 1 to 256, not '257'"),
        (lambda: asked(compute="30", group="", group_size="4"), "lower-case letters"),
    ],
)
def test_what_can_never_work_is_refused_with_how_to_write_it(request_of, text):
    with pytest.raises(RequestError) as caught:
        request_of()
    assert text in str(caught.value)


def test_every_annotation_is_read():
    request = asked(
        memory="16",
        compute="30",
        compute_policy="fixed",
        compute_weight="7",
        gpu_model="A100, H100 ,!T4",
        gpu_uuid="!GPU-1",
        placement="pack",
        group="train.1",
        group_size="8",
        shim="off",
    )
    assert (request.policy, request.weight, request.placement) == ("fixed", 7, "pack")
    assert request.models == Selection(frozenset({"A100", "H100"}), frozenset({"T4"}))
    assert request.uuids == Selection(excluded=frozenset({"GPU-1"}))
    assert (request.group, request.group_size, request.shim_off) == ("train.1", 8, True)


@pytest.mark.parametrize(
    ("selection", "model", "admitted"),
    [
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("a100-80gb", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("H100,L4", "NVIDIA L4", True),
        ("!A100", "NVIDIA A100-SXM4-80GB", False),
        ("!A100", "NVIDIA L4", True),
        ("A100,!40GB", "NVIDIA A100-PCIE-40GB", False),
        ("", "NVIDIA L4", True),
        (",L4,", "NVIDIA L4", True),
        (",L4,", "NVIDIA A100-SXM4-80GB", False),
        ("A100,!A100-40GB", "NVIDIA A100-SXM4-80GB", True),
    ],
)
def test_models_are_named_by_whole_words(selection, model, admitted):
    assert asked(compute="10", gpu_model=selection).models.admits_model(model) is admitted


def test_uuids_are_named_in_full():
    wanted = Selection(wanted=frozenset({"GPU-1"}))
    assert wanted.admits_uuid("GPU-1")
    assert not wanted.admits_uuid("GPU-10")
    assert not Selection(excluded=frozenset({"GPU-1"})).admits_uuid("GPU-1")


amounts = st.one_of(
    st.integers(-5, 5000).map(str), st.sampled_from(["4Gi", "1e3", "500m", "x", "", "0.5"])
)
words = st.one_of(
    st.integers(-1, 40).map(str),
    st.sampled_from(["", "fixed", "pack", "off", "A100,!T4", "!!", "GPU-1,GPU-2", "a" * 70]),
)
annotation_names = st.sampled_from(
    [
        *(names.POLICY, names.WEIGHT, names.GPUS, names.GPU_MODEL, names.GPU_UUID),
        *(names.PLACEMENT, names.GROUP, names.GROUP_SIZE, names.SHIM),
    ]
)


@settings(max_examples=400)
@given(
    annotations=st.dictionaries(annotation_names, words, max_size=4),
    limits=st.lists(
        st.dictionaries(st.sampled_from([names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE]), amounts),
        max_size=3,
    ),
)
def test_whatever_is_written_is_read_within_its_bounds_or_refused(annotations, limits):
    containers = [(f"c{n}", each, Role.APP) for n, each in enumerate(limits)]
    try:
        request = read_request(annotations, containers)
    except RequestError:
        return
    for container in request.containers:
        gpus = request.gpus_of(container)
        assert 1 <= gpus <= MOST_GPUS
        assert container.memory_units % gpus == 0
        assert 0 <= container.compute_percent // gpus <= 100
        assert container.compute_percent % gpus == 0
        assert not request.is_whole(container) or not container.memory_units
    assert (request.group is None) == (names.GROUP_SIZE not in annotations)


@settings(max_examples=200)
@given(text=st.text(max_size=40))
def test_no_text_selects_a_gpu_that_it_also_excludes(text):
    try:
        models = asked(compute="10", gpu_model=text).models
    except RequestError:
        return
    assert not models.wanted & models.excluded
    for name in models.wanted:
        assert models.admits_model(name), "what is wanted can never be had"
    for name in models.excluded:
        assert not models.admits_model(name)
