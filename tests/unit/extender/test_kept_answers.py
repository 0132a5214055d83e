"""What is kept between two calls of kube-scheduler is what would be found anew."""

import random
import sys

import msgspec
import numpy as np
import pytest

from aliquot.protocol.request import ContainerRequest, PodRequest, Selection
from scheduler_ext.placement import Cluster, Gpu, Node, fitting
from scheduler_ext.ratings import Ratings
from scheduler_ext.reasons import reasons_for
from scheduler_ext.requests import demand_of
from scheduler_ext.sentences import Sentences
from scheduler_ext.turns import undisturbed

DEMANDS = [
    demand_of(PodRequest((ContainerRequest("main", 48, 30),))),
    demand_of(PodRequest((ContainerRequest("main", 0, 200),))),
    demand_of(PodRequest((ContainerRequest("main", 200, 10),))),
    demand_of(PodRequest((ContainerRequest("a", 90, 30), ContainerRequest("b", 90, 30)))),
    demand_of(
        PodRequest(
            (ContainerRequest("main", 48, 30),), models=Selection(excluded=frozenset({"L4"}))
        )
    ),
]


def node(name: str, model: str = "A100", gpus: int = 2) -> Node:
    found = tuple(Gpu(f"{name}-{number}", model, 160, number) for number in range(gpus))
    return Node(name, 1000, 1000, found)


@pytest.mark.parametrize("seed", range(5))
def test_a_kept_sentence_is_the_one_that_would_be_found_now(seed):
    drawn = random.Random(seed)
    cluster = Cluster([node(f"n{number}") for number in range(12)])
    sentences = Sentences(cluster, 256)
    for step in range(150):
        for _ in range(drawn.randrange(4)):
            row = drawn.choice([row for row, name in enumerate(cluster.names) if name])
            device = drawn.randrange(len(cluster.uuids[row]))
            cluster.set_gpu_free(row, device, 10 * drawn.randrange(101), drawn.randrange(161))
        if step % 10 == 9:
            # Another kind of node in the same row, and one row more than there was room for.
            cluster.remove(drawn.choice(list(cluster.row_of)))
            cluster.add(node(f"later{step}", drawn.choice(["A100", "L4"]), drawn.randrange(1, 4)))
            cluster.add(node(f"more{step}"))
        for demand in DEMANDS:
            rows = np.flatnonzero(cluster.present)
            for request in demand.requests:
                rows = rows[~fitting(cluster, rows, request, host=False)]
            asked = rows[np.array([drawn.random() < 0.7 for _ in rows], dtype=bool)]
            assert sentences.of(demand, asked) == reasons_for(cluster, asked, demand, 256)


def test_an_answer_in_pieces_is_the_answer():
    cluster = Cluster([node("a"), node("b"), node("c")])
    ratings = Ratings(cluster)
    assert answer(ratings, cluster, {"c": 10, "a": 0}) == {"c": 10, "a": 0}
    # The row is another node's now: its name must not be said any more.
    cluster.remove("c")
    cluster.add(node("d"))
    for number in range(20):
        cluster.add(node(f"more-{number}"))
    expected = {"d": 3, "b": 10, "more-19": 9}
    assert answer(ratings, cluster, expected) == expected
    assert answer(ratings, cluster, {"b": 1, "unknown": 0}) == {"b": 1, "unknown": 0}
    assert answer(ratings, cluster, {}) == {}


def answer(ratings: Ratings, cluster: Cluster, scores: dict[str, int]) -> dict[str, int]:
    rows = np.array([cluster.row_of.get(name, -1) for name in scores], dtype=np.int64)
    given = np.array(list(scores.values()), dtype=np.int64)
    found = msgspec.json.decode(ratings.encode(list(scores), rows, given))
    return {each["Host"]: each["Score"] for each in found}


def test_threads_take_turns_as_before_when_a_verb_has_failed():
    before_s = sys.getswitchinterval()
    with pytest.raises(ValueError, match="malformed"):
        _fail_undisturbed()
    assert sys.getswitchinterval() == before_s


def _fail_undisturbed() -> None:
    with undisturbed():
        raise ValueError("malformed")
