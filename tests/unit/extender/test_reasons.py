"""The sentence that a rejected node gets in the pod's event."""

import numpy as np
import pytest

from aliquot.protocol.request import ContainerRequest, PodRequest, Selection
from scheduler_ext.placement import Cluster, Gpu, Node
from scheduler_ext.reasons import Cause, reasons_for
from scheduler_ext.requests import demand_of


def cluster(*free: tuple[int, int], model: str = "NVIDIA A100") -> Cluster:
    """One node; by GPU what is free of 160 units and 100 percent."""
    gpus = tuple(Gpu(f"g{number}", model, 160, number + 3) for number in range(len(free)))
    made = Cluster([Node("n", 1000, 1000, gpus)])
    for device, (memory, percent) in enumerate(free):
        made.set_gpu_free(0, device, percent * 10, memory)
    return made


def reason(made: Cluster, *containers: ContainerRequest, **more):
    demand = demand_of(PodRequest(containers, **more))
    [found] = reasons_for(made, np.array([0]), demand, 256)
    return found


@pytest.mark.parametrize(
    ("free", "asked", "more", "cause", "text"),
    [
        (
            [(30, 90), (20, 90)],
            (48, 10),
            {},
            Cause.MEMORY,
            "GPU 3 has the most free memory: 7.5 of 12 GiB asked",
        ),
        (
            [(160, 20), (160, 25)],
            (48, 30),
            {},
            Cause.COMPUTE,
            "GPU 4 has the most free compute: 25 of 30 percent asked",
        ),
        (
            [(160, 20), (8, 100)],
            (48, 30),
            {},
            Cause.BOTH,
            "of the GPUs with 12 GiB free, GPU 3 has the most free compute: 20 of 30 percent asked",
        ),
        (
            [(160, 100)],
            (192, 10),
            {},
            Cause.SIZE,
            "GPU 3 is the largest: 40 of 48 GiB asked on one GPU",
        ),
        (
            [(160, 100), (100, 100), (160, 100)],
            (0, 300),
            {},
            Cause.WHOLE,
            "3 whole GPUs asked: 2 of 3 are free",
        ),
        (
            [(160, 99), (100, 100)],
            (0, 100),
            {},
            Cause.WHOLE,
            "1 whole GPU asked: 0 of 2 are free",
        ),
        (
            [(160, 100), (10, 100)],
            (32, 20),
            {"gpus": 2},
            Cause.SEVERAL,
            "2 GPUs with 4 GiB and 10 percent each asked: 1 of 2 has that free",
        ),
        (
            [(160, 100)],
            (32, 20),
            {"gpus": 2},
            Cause.COUNT,
            "2 GPUs asked on one node: 1 of 1 is of a wanted kind",
        ),
        (
            [(160, 100)],
            (8, 10),
            {"models": Selection(frozenset({"H100", "L40S"}))},
            Cause.KIND,
            "H100 or L40S asked, the node has NVIDIA A100",
        ),
        (
            [(160, 100)],
            (8, 10),
            {"models": Selection(excluded=frozenset({"A100"}))},
            Cause.KIND,
            "the pod excludes what the node has (NVIDIA A100)",
        ),
        (
            [(160, 100)],
            (8, 10),
            {"uuids": Selection(frozenset({"GPU-x"}))},
            Cause.KIND,
            "none of the GPUs that the pod names by uuid is here",
        ),
        ([], (8, 10), {}, Cause.KIND, "the node has no GPU"),
    ],
)
def test_a_node_says_what_was_asked_and_what_is_there(free, asked, more, cause, text):
    found = reason(cluster(*free), ContainerRequest("main", *asked), **more)
    assert (found.cause, found.text) == (cause, text)


def test_the_container_is_named_where_there_are_several():
    containers = (ContainerRequest("a", 8, 10), ContainerRequest("b", 48, 10))
    found = reason(cluster((30, 90)), *containers)
    assert found.text == "container b: GPU 3 has the most free memory: 7.5 of 12 GiB asked"


def test_containers_that_fit_alone_may_not_fit_together():
    containers = (ContainerRequest("a", 20, 10), ContainerRequest("b", 20, 10))
    found = reason(cluster((30, 90)), *containers)
    assert found.cause is Cause.TOGETHER
    assert "each of the 2 containers would fit alone" in found.text


def test_preemption_is_only_tried_where_it_can_help():
    full = reason(cluster((0, 0)), ContainerRequest("main", 8, 10))
    small = reason(cluster((160, 100)), ContainerRequest("main", 200, 10))
    assert not full.cause.is_permanent
    assert small.cause.is_permanent
