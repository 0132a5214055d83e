"""What stands between a bind call and a bound pod: failures half-way, races, and what is undone."""

import threading

from aliquot.protocol import names
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod, plan_of

POD = "/api/v1/namespaces/default/pods/p"


def test_a_plan_that_cannot_be_written_gives_the_gpu_back(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    stored = server.add(gpu_pod("p", memory=160, compute=100))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.choose(stored, ["n1"]) == "n1"
    server.fail(500, method="PATCH", path="pods/p$")
    error = scheduler.bind(stored, "n1")
    assert "the plan for default/p was not written" in error
    assert extender.state.ledger.is_empty()
    assert scheduler.schedule(stored, ["n1"]) == "n1"


def test_a_refused_binding_removes_the_plan(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    stored = server.add(gpu_pod("p", memory=160, compute=100))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.choose(stored, ["n1"]) == "n1"
    server.fail(500, method="POST", path="binding")
    assert "was not bound to n1" in scheduler.bind(stored, "n1")
    assert plan_of(server.get(POD)) is None
    server.wait_for(extender.state.ledger.is_empty)
    assert scheduler.schedule(stored, ["n1"]) == "n1"


def test_a_lost_answer_counts_as_bound_when_it_is(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    stored = server.add(gpu_pod("p", memory=160, compute=100))
    scheduler = connect(start())
    assert scheduler.choose(stored, ["n1"]) == "n1"
    server.lose_answers(method="POST", path="binding")
    assert scheduler.bind(stored, "n1") == ""
    assert server.get(POD)["spec"]["nodeName"] == "n1"


def test_a_pod_of_the_same_name_is_not_bound_in_its_place(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    stored = server.add(gpu_pod("p", memory=160, compute=100))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.choose(stored, ["n1"]) == "n1"
    server.remove(POD)
    later = gpu_pod("p", memory=16, compute=10)
    later["metadata"]["uid"] = "another"
    server.add(later)
    assert scheduler.bind(stored, "n1") != ""
    found = server.get(POD)
    assert "nodeName" not in found["spec"]
    assert names.PLAN not in found["metadata"]["annotations"]
    server.wait_for(extender.state.ledger.is_empty)


def test_two_pods_that_race_for_one_gpu_do_not_both_get_it(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    first = server.add(gpu_pod("a", memory=100, compute=60))
    second = server.add(gpu_pod("b", memory=100, compute=60))
    extender = start()
    scheduler = connect(extender)
    # kube-scheduler has decided about the first and not bound it yet when the second one comes.
    assert scheduler.choose(first, ["n1"]) == "n1"
    assert scheduler.choose(second, ["n1"]) is None
    # Even a bind call out of the blue does not get what is kept for another.
    assert "GPU 0 has the most free memory: 15 of 25 GiB asked" in scheduler.bind(second, "n1")
    assert scheduler.bind(first, "n1") == ""


def test_many_binds_at_once_never_share_a_gpu(server, start, connect):
    for number in range(4):
        server.add(gpu_node(f"n{number}"))
    nodes = [f"n{number}" for number in range(4)]
    pods = [server.add(gpu_pod(f"p{number}", memory=90, compute=60)) for number in range(12)]
    extender = start()
    scheduler = connect(extender)
    chosen = [scheduler.choose(stored, nodes) for stored in pods]
    assert sum(each is not None for each in chosen) == 8
    errors: list[str] = []

    def bind(stored, node):
        with FakeScheduler(extender.port) as other:
            errors.append(other.bind(stored, node))

    threads = [
        threading.Thread(target=bind, args=(stored, node or "n0"))
        for stored, node in zip(pods, chosen, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    bound = [each for each in server.objects("/api/v1/pods") if "nodeName" in each["spec"]]
    gpus = [plan_of(each).containers["main"][0].uuid for each in bound]
    assert len(bound) == len(set(gpus)) == 8
    assert errors.count("") == 8


def test_a_pod_that_was_never_filtered_is_read_and_bound(server, start, connect):
    server.add(gpu_node("n1"))
    stored = server.add(gpu_pod("p"))
    scheduler = connect(start())
    assert scheduler.bind(stored, "n1") == ""
    assert plan_of(server.get(POD)) is not None
    assert "is bound already" in scheduler.bind(stored, "n1")
