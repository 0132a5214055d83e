"""The kubelet's list is read anew each time, and only what is new in it costs anything."""

from random import Random

from deviceplugin.booking.sources import ContainerKey, Held
from deviceplugin.kubelet.holdings import HoldingsReader, of_others
from deviceplugin.kubelet.proto import holdings_pb2 as messages
from deviceplugin.kubelet.proto import pod_resources_pb2 as api
from tests.unit.agent.agent_node import COMPUTE, MEMORY, uuid

Containers = dict[str, dict[str, set[str]]]


def ids(first: int, count: int, gpu: int = 0) -> set[str]:
    return {f"m-{uuid(gpu)}-{number}" for number in range(first, first + count)}


def answer(*pods: tuple[str, Containers], seed: int = 0) -> messages.Holdings:
    """As the kubelet sends it: one message for each id, in an order nobody knows."""
    told = api.ListPodResourcesResponse()
    for name, containers in pods:
        pod = told.pod_resources.add(name=name, namespace="default")
        for container, held in containers.items():
            listed = pod.containers.add(name=container)
            devices = [(resource, each) for resource, some in held.items() for each in sorted(some)]
            Random(seed).shuffle(devices)
            for resource, each in devices:
                listed.devices.add(resource_name=resource, device_ids=[each])
    return messages.Holdings.FromString(told.SerializeToString())


def test_who_holds_the_same_in_another_order_is_the_same_object() -> None:
    reader = HoldingsReader()
    pods = [(f"pod-{number}", {"main": {MEMORY: ids(10 * number, 10)}}) for number in range(3)]
    first = reader.read(answer(*pods, seed=1))
    again = reader.read(answer(*pods, seed=2))
    assert [each.key.pod for each in first] == ["pod-0", "pod-1", "pod-2"]
    assert all(old is new for old, new in zip(first, again, strict=True))


def test_every_other_set_of_ids_is_noticed() -> None:
    reader = HoldingsReader()
    for some in (ids(0, 4), ids(0, 5), ids(1, 4), ids(0, 4, gpu=1), set(), ids(0, 4)):
        held = {MEMORY: some} if some else {}
        (found,) = reader.read(answer(("a", {"main": held})))
        assert found == Held(
            ContainerKey("default", "a", "main"), {key: frozenset(held[key]) for key in held}
        )


def test_halves_and_resources_of_others_stay_apart() -> None:
    held = {MEMORY: ids(0, 2), COMPUTE: {f"c-{uuid(0)}-7"}, "nvidia.com/gpu": {uuid(3)}}
    first, second = HoldingsReader().read(answer(("a", {"main": held, "plain": {}})))
    assert first.ids == {resource: frozenset(some) for resource, some in held.items()}
    assert second == Held(ContainerKey("default", "a", "plain"), {})


def test_a_pod_and_its_successor_of_the_same_name_are_both_listed() -> None:
    reader = HoldingsReader()
    twice = [("web-0", {"main": {MEMORY: ids(0, 2)}}), ("web-0", {"main": {MEMORY: ids(2, 2)}})]
    for seed in range(3):
        found = reader.read(answer(*twice, seed=seed))
        assert [each.ids[MEMORY] for each in found] == [ids(0, 2), ids(2, 2)]


def test_who_is_gone_from_the_list_is_forgotten() -> None:
    reader = HoldingsReader()
    reader.read(answer(("a", {"main": {MEMORY: ids(0, 2)}}), ("b", {"main": {}})))
    assert [each.key.pod for each in reader.read(answer(("b", {"main": {}})))] == ["b"]
    assert list(reader._known) == [("default", "b", "main")]


def test_ids_that_somebody_keeps_anyway_are_not_kept_twice() -> None:
    kept = frozenset(ids(0, 4))
    reader = HoldingsReader(lambda _resource, some: kept if some == kept else some)
    (found,) = reader.read(answer(("a", {"main": {MEMORY: ids(0, 4)}})))
    assert found.ids[MEMORY] is kept


def test_what_others_advertise_is_told_without_what_is_ours() -> None:
    told = api.AllocatableResourcesResponse()
    for resource, each in (
        (MEMORY, f"m-{uuid(0)}-0"),
        ("nvidia.com/gpu", uuid(0)),
        (COMPUTE, f"c-{uuid(0)}-0"),
        ("nvidia.com/gpu", uuid(1)),
        (f"{MEMORY}-of-others", "x"),
    ):
        told.devices.add(resource_name=resource, device_ids=[each])
    found = of_others(messages.Allocatable.FromString(told.SerializeToString()))
    assert found == {
        "nvidia.com/gpu": frozenset({uuid(0), uuid(1)}),
        f"{MEMORY}-of-others": frozenset({"x"}),
    }
