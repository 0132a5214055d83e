"""From a pod's containers to what placement is asked, and back to a plan."""

import pytest

from aliquot.protocol.assignment import Slice
from aliquot.protocol.request import ContainerRequest, PodRequest, RequestError, Role, Selection
from scheduler_ext.footprint import Amount, footprint_of
from scheduler_ext.requests import assignment_of, demand_of


def pod(*containers: ContainerRequest, **more) -> PodRequest:
    return PodRequest(containers, **more)


def test_a_pod_without_gpus_demands_nothing():
    assert demand_of(pod()) is None


def test_each_container_is_placed_by_itself_the_largest_first():
    demand = demand_of(
        pod(ContainerRequest("small", 8, 10), ContainerRequest("large", 80, 50)),
        cpu_milli=500,
        memory_mib=64,
    )
    assert [part.containers[0].name for part in demand.parts] == ["large", "small"]
    assert [part.request.gpu_memory_units for part in demand.parts] == [80, 8]
    # The pod's CPU and memory count once.
    assert [part.request.cpu_milli for part in demand.parts] == [500, 0]


def test_a_request_over_several_gpus_is_split_evenly():
    request = pod(ContainerRequest("main", 80, 60), gpus=2)
    demand = demand_of(request)
    [part] = demand.parts
    assert (part.request.gpus, part.request.gpu_memory_units) == (2, 40)
    assert part.request.compute_milli == 300
    plan = assignment_of(request, demand, (("a", "b"),), 256)
    assert plan.containers == {"main": (Slice("a", 40, 30), Slice("b", 40, 30))}


def test_whole_gpus_stand_beside_fractions():
    request = pod(ContainerRequest("part", 16, 20), ContainerRequest("whole", 0, 200))
    demand = demand_of(request)
    assert [part.request.gpus for part in demand.parts] == [2, 1]
    assert [part.request.gpu_memory_units for part in demand.parts] == [None, 16]
    plan = assignment_of(request, demand, (("a", "b"), ("c",)), 256)
    assert plan.containers["whole"] == (Slice("a", 0, 100), Slice("b", 0, 100))
    booked = {share.uuid: share.amount for share in footprint_of(plan, request)}
    assert booked["a"] == Amount(0, 100, 1)
    assert booked["c"] == Amount(16, 20, 0)


def test_an_init_container_shares_the_gpu_and_counts_by_the_maximum():
    request = pod(
        ContainerRequest("fetch", 40, 10, Role.INIT),
        ContainerRequest("watch", 8, 5, Role.SIDECAR),
        ContainerRequest("convert", 20, 50, Role.INIT),
        ContainerRequest("serve", 30, 30),
    )
    demand = demand_of(request)
    [part] = demand.parts
    # 40 first; then 8 + 20; in the end 8 + 30. Compute: 10, 5 + 50, 5 + 30.
    assert (part.request.gpu_memory_units, part.request.compute_milli) == (40, 550)
    plan = assignment_of(request, demand, (("a",),), 256)
    assert set(plan.containers) == {"fetch", "watch", "convert", "serve"}
    [share] = footprint_of(plan, request)
    assert share.amount == Amount(40, 55, 0)


def test_sidecars_run_beside_and_are_placed_by_themselves():
    demand = demand_of(
        pod(ContainerRequest("side", 8, 10, Role.SIDECAR), ContainerRequest("main", 16, 20))
    )
    assert len(demand.parts) == 2


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        (
            (
                ContainerRequest("i", 8, 10, Role.INIT),
                ContainerRequest("w", 0, 100),
                ContainerRequest("a", 8, 10),
            ),
            "cannot share its GPU",
        ),
        (
            (
                ContainerRequest("i", 8, 10, Role.INIT),
                ContainerRequest("a", 8, 60),
                ContainerRequest("b", 8, 60),
            ),
            "together they ask for 120 percent",
        ),
    ],
)
def test_what_cannot_share_one_gpu_is_refused_with_the_way_out(containers, text):
    with pytest.raises(RequestError, match=text):
        demand_of(pod(*containers))


def test_selections_reach_placement():
    request = pod(
        ContainerRequest("main", 8, 10),
        models=Selection(frozenset({"A100"}), frozenset({"H100"})),
        uuids=Selection(excluded=frozenset({"GPU-1"})),
        placement="spread",
    )
    demand = demand_of(request)
    asked = demand.requests[0]
    assert (asked.models, asked.excluded_models) == ({"A100"}, {"H100"})
    assert asked.excluded_uuids == {"GPU-1"}
    assert demand.policy == "spread"
