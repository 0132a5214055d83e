"""What one side writes in an annotation the other side reads as the same value, or refuses."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.protocol import assignment, inventory, resize
from aliquot.protocol.assignment import Assignment, MalformedError, Slice
from aliquot.protocol.inventory import GpuRecord, Link, NodeInventory
from aliquot.protocol.quantity import QuantityError
from aliquot.protocol.resize import Amounts, ResizeAnswer, ResizeRequest, units_for

ASKS = '{"id": "%s", "containers": {"a": {"memory_units": %s}}}'
EXAMPLES = settings(max_examples=150)

names = st.text(min_size=1, max_size=20)
counts = st.integers(0, 10**6)
slices = st.builds(Slice, names, counts, counts)
assignments = st.builds(
    Assignment,
    st.dictionaries(names, st.lists(slices, max_size=4).map(tuple), max_size=4),
    st.integers(1, 4096),
)
gpus = st.builds(
    GpuRecord,
    uuid=names,
    index=st.integers(0, 15),
    model=names,
    memory_units=counts,
    compute_percent=st.integers(1, 1000),
    memory_mib=counts,
    sms=st.integers(0, 200),
    numa=st.integers(-1, 8),
    unusable=st.text(max_size=10),
)


@st.composite
def inventories(draw: st.DrawFn) -> NodeInventory:
    some = tuple(draw(st.lists(gpus, max_size=4)))
    row = st.lists(st.sampled_from(Link), min_size=len(some), max_size=len(some)).map(tuple)
    table = st.lists(row, min_size=len(some), max_size=len(some)).map(tuple)
    links = draw(st.just(()) | table) if some else ()
    return NodeInventory(some, draw(st.integers(1, 4096)), draw(st.text(max_size=9)), links)


amounts = st.builds(Amounts, st.none() | st.integers(1, 10**6), st.integers(1, 1600))
requests = st.builds(
    ResizeRequest,
    names,
    st.dictionaries(names, amounts, min_size=1, max_size=4),
    st.integers(1, 4096),
)


@EXAMPLES
@given(assignments)
def test_assignments_come_back_as_they_were(value: Assignment) -> None:
    assert assignment.decode(assignment.encode(value)) == value


@EXAMPLES
@given(inventories())
def test_inventories_come_back_as_they_were(value: NodeInventory) -> None:
    assert inventory.decode(inventory.encode(value)) == value


@EXAMPLES
@given(requests)
def test_requests_come_back_as_they_were(value: ResizeRequest) -> None:
    assert resize.decode_request(resize.encode(value)) == value


@EXAMPLES
@given(names, st.text(max_size=50), st.dictionaries(names, amounts, max_size=3))
def test_answers_come_back_as_they_were(
    request_id: str, refusal: str, has: dict[str, Amounts]
) -> None:
    value = ResizeAnswer(request_id, refusal, has)
    assert resize.decode_answer(resize.encode(value)) == value


def test_equal_values_have_equal_texts() -> None:
    """So that whoever writes only changes can compare texts."""
    one = Assignment({"a": (Slice("x", 1, 2),), "b": ()})
    other = Assignment({"b": (), "a": (Slice("x", 1, 2),)})
    assert assignment.encode(one) == assignment.encode(other)


def test_the_form_of_an_assignment_is_compact_and_documented() -> None:
    text = assignment.encode(Assignment({"main": (Slice("GPU-1", 16, 30),)}))
    assert json.loads(text) == {"containers": {"main": [["GPU-1", 16, 30]]}}


def test_an_inventory_of_sixteen_gpus_is_far_from_the_limit_of_annotations() -> None:
    some = tuple(
        GpuRecord(f"GPU-{index:036}", index, "NVIDIA H200 NVL", 564, 100, 144384, 132, index // 8)
        for index in range(16)
    )
    links = tuple(tuple(Link.NVLINK for _ in some) for _ in some)
    text = inventory.encode(NodeInventory(some, driver="580.95.05", links=links))
    assert len(text) < 4096


def test_fields_of_a_newer_version_are_skipped() -> None:
    assert assignment.decode('{"containers": {}, "colour": "red"}') == Assignment({})
    told = '{"gpus": [{"uuid": "x", "index": 0, "model": "m", "memory_units": 1, "new": 5}]}'
    assert inventory.decode(told).gpus == (GpuRecord("x", 0, "m", 1),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"containers": []}',
        '{"containers": {"a": [["x", 1]]}}',
        '{"containers": {"a": [["x", "1", 2]]}}',
        '{"containers": {"a": [["x", 1.5, 2]]}}',
    ],
)
def test_a_malformed_assignment_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        assignment.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"gpus": {}}',
        '{"gpus": [{"uuid": "x"}]}',
        '{"gpus": [], "links": [[3]]}',
        '{"gpus": [{"uuid":"x","index":0,"model":"m","memory_units":1}], "links": [[9]]}',
    ],
)
def test_a_malformed_inventory_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        inventory.decode(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "truncated"),
        ("please", "malformed"),
        ('{"id": "x"}', "containers"),
        ('{"id": "x", "containers": {}}', "no container"),
        ('{"id": "x", "containers": {"a": {}}}', "neither"),
        ('{"id": "x", "containers": {"a": {"memory_units": 0}}}', "from 1 to"),
        ('{"id": "x", "containers": {"a": {"compute_percent": -5}}}', "from 1 to"),
        ('{"id": "x", "containers": {"a": {"memory_units": "6Gi"}}}', "memory_units"),
        ('{"id": "x", "containers": {"a": {"memory_units": 1}}, "unit_mib": 0}', "unit_mib"),
        (ASKS % ("x", "9" * 400), "from 1 to 2147483648"),
        (ASKS % ("x", "9" * 5000), "out of range"),
        (ASKS % ("x", "1") + " " * (16 << 10), "are the most"),
        (ASKS % ("", "1"), "id must have 1 to 64 characters"),
        (ASKS % ("x" * 65, "1"), "id must have 1 to 64 characters"),
    ],
)
def test_a_malformed_request_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(MalformedError, match=complaint):
        resize.decode_request(text)


@pytest.mark.parametrize(
    "decode",
    [assignment.decode, inventory.decode, resize.decode_request, resize.decode_answer],
)
def test_what_is_nested_too_deeply_is_refused_as_well(decode: Callable[[str], object]) -> None:
    for text in ('{"x":' * 3000, '{"x":' + "[" * 3000):
        with pytest.raises(MalformedError):
            decode(text)


@EXAMPLES
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for decode in (assignment.decode, inventory.decode, resize.decode_request):
        try:
            decode(text)
        except MalformedError:
            continue


@EXAMPLES
@given(requests, st.integers(1, 4096))
def test_other_units_never_mean_less_memory_and_at_most_a_unit_more(
    request: ResizeRequest, unit_mib: int
) -> None:
    turned = request.in_units_of(unit_mib)
    for name, asked in request.containers.items():
        got = turned.containers[name]
        assert got.compute_percent == asked.compute_percent
        if asked.memory_units is None:
            assert got.memory_units is None
        else:
            more_mib = (got.memory_units or 0) * unit_mib - asked.memory_units * request.unit_mib
            assert 0 <= more_mib < unit_mib


@pytest.mark.parametrize(
    ("quantity", "units"),
    [("6Gi", 24), ("256Mi", 1), ("257Mi", 2), ("1", 1), ("16", 16), ("6G", 23), ("1.5Gi", 6)],
)
def test_memory_is_counted_in_whole_units(quantity: str, units: int) -> None:
    assert units_for(quantity, 256) == units


@pytest.mark.parametrize(
    ("quantity", "complaint"),
    [
        ("0", "is nothing"),
        ("-5Gi", "is nothing|no whole"),
        ("0.5", "no whole number of units; write it like 6Gi"),
        ("1e-9", "no whole number"),
        ("1e999", "more than any GPU has"),
    ],
)
def test_what_no_gpu_can_have_is_refused(quantity: str, complaint: str) -> None:
    with pytest.raises(QuantityError, match=complaint):
        units_for(quantity, 256)


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(QuantityError, match=re.escape("write it like 4Gi")):
        units_for("25%", 256)
