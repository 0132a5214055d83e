"""Which containers are shown, and in which order."""

import pytest

from aliquot.protocol.view import ClusterView
from aliquot.top.selection import Selection, select
from tests.unit.top.views import CLUSTER, GIB, gpu, part


def pods(view: ClusterView) -> list[str]:
    return [each.pod for node in view.nodes for gpu in node.gpus for each in gpu.slices]


def test_without_any_wish_everything_is_there_by_name() -> None:
    shown = select(CLUSTER, Selection())
    assert [node.name for node in shown.nodes] == ["gpu-a", "gpu-b"]
    assert pods(shown)[:5] == ["pair", "pair", "train-0", "chat-7d9f6c5b4-x2k9p", "soon"]
    assert len(shown.waiting) == 1


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Selection(namespace="web"), ["chat-7d9f6c5b4-x2k9p"]),
        (Selection(name="train"), ["train-0"]),
        (Selection(name="pair/two"), ["pair"]),
        (Selection(name="team/pair"), ["pair", "pair"]),
        (Selection(namespace="web", name="train"), []),
        (Selection(name="TRAIN"), []),
    ],
)
def test_containers_are_found_by_name(wanted: Selection, found: list[str]) -> None:
    shown = select(CLUSTER, wanted)
    assert pods(shown) == found
    assert all(gpu.slices for node in shown.nodes for gpu in node.gpus), "only theirs"


@pytest.mark.parametrize(
    ("wanted", "nodes", "gpus"),
    [
        (Selection(node="gpu-b"), ["gpu-b"], [0]),
        (Selection(node="gpu-*"), ["gpu-a", "gpu-b"], [0, 1, 0]),
        (Selection(node="gpu"), [], []),
        (Selection(gpu="1"), ["gpu-a"], [1]),
        (Selection(gpu="gpu-00000000-0000-0000-0000-000000000001"), ["gpu-a"], [1]),
        (Selection(gpu="9"), [], []),
    ],
)
def test_nodes_and_gpus_are_chosen(wanted: Selection, nodes: list[str], gpus: list[int]) -> None:
    shown = select(CLUSTER, wanted)
    assert [node.name for node in shown.nodes] == nodes
    assert [gpu.index for node in shown.nodes for gpu in node.gpus] == gpus
    assert shown.waiting == (), "who waits is on no node"


def test_who_waits_is_filtered_alike() -> None:
    assert len(select(CLUSTER, Selection(name="large")).waiting) == 1
    assert select(CLUSTER, Selection(name="train")).waiting == ()
    assert select(CLUSTER, Selection(namespace="web")).waiting == ()


def test_most_comes_first_and_what_nobody_knows_or_plans_last() -> None:
    (node, *_) = select(CLUSTER, Selection(order="compute")).nodes
    first, second = node.gpus
    assert [each.pod for each in first.slices] == [
        *("chat-7d9f6c5b4-x2k9p", "pair", "pair", "train-0", "soon"),
    ]
    assert second.slices[-1].pod == "new"


@pytest.mark.parametrize(
    ("order", "first"), [("memory", "big"), ("compute", "busy"), ("throttled", "held")]
)
def test_gpus_and_nodes_are_sorted_by_what_their_containers_do(order: str, first: str) -> None:
    idle = part("idle", memory_used_bytes=0, compute_used_percent=0.0)
    view = ClusterView(
        taken_at=0.0,
        version="1",
        nodes=tuple(
            type(CLUSTER.nodes[0])(name=name, taken_at=0.0, gpus=(gpu(0, idle), gpu(1, each)))
            for name, each in (
                ("a", part("big", memory_used_bytes=12 * GIB)),
                ("b", part("busy", compute_used_percent=90.0)),
                ("c", part("held", throttled_percent=50.0)),
            )
        ),
    )
    shown = select(view, Selection(order=order))
    assert pods(shown)[0] == first
    assert shown.nodes[0].gpus[0].index == 1
