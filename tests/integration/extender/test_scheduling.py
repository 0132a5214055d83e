"""A pod's way through the extender, over real HTTP against the API server's stand-in."""

from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from tests.extender_cluster import gpu_node, gpu_pod, plan_of, uuid_of


def test_a_pod_gets_a_node_and_a_plan(server, start, connect):
    server.add(gpu_node("n1"))
    server.add(gpu_node("n2"))
    stored = server.add(gpu_pod("p", memory=16, compute=30))
    scheduler = connect(start())
    chosen = scheduler.schedule(stored, ["n1", "n2"])
    bound = server.get("/api/v1/namespaces/default/pods/p")
    assert bound["spec"]["nodeName"] == chosen
    plan = plan_of(bound)
    [part] = plan.containers["main"]
    assert part.uuid in {uuid_of(chosen, 0), uuid_of(chosen, 1)}
    assert (part.memory_units, part.compute_percent) == (16, 30)


def test_the_first_choice_alone_has_the_best_score(server, start, connect):
    for number in range(20):
        server.add(gpu_node(f"n{number}"))
    stored = server.add(gpu_pod("p"))
    scheduler = connect(start())
    nodes = [f"n{number}" for number in range(20)]
    scores = scheduler.prioritize(stored, nodes)
    assert sorted(scores) == sorted(nodes)
    assert sorted(scores.values())[-1] == 10
    assert sorted(scores.values())[-2] < 10


def test_a_rejected_node_says_what_is_missing(server, start, connect):
    server.add(gpu_node("n1", memory_units=160))
    server.add(gpu_pod("a", 130, 10, node="n1", annotations=_plan(uuid_of("n1", 0), 130, 10)))
    server.add(gpu_pod("b", 140, 10, node="n1", annotations=_plan(uuid_of("n1", 1), 140, 10)))
    stored = server.add(gpu_pod("p", memory=48, compute=10))
    scheduler = connect(start())
    answer = scheduler.filter(stored, ["n1", "unknown"])
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"n1": "GPU 0 has the most free memory: 7.5 of 12 GiB asked"}
    assert answer["FailedAndUnresolvableNodes"] == {"unknown": "the node is not known here (yet)"}


def _plan(uuid: str, memory: int, compute: int) -> dict[str, str]:
    return {names.PLAN: assignment.encode(Assignment({"main": (Slice(uuid, memory, compute),)}))}
