"""Everything is in the API server: a new process books what the old one did, and nothing else."""

from aliquot.kubernetes.lease import LeaseTimes
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from scheduler_ext.extender import Extender
from scheduler_ext.leader import LEADER_LABEL
from scheduler_ext.settings import load
from simcluster.apiserver import pod
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod, uuid_of


def _slices(uuid: str, memory: int, compute: int) -> str:
    return assignment.encode(Assignment({"main": (Slice(uuid, memory, compute),)}))


def test_the_ledger_is_rebuilt_from_the_api_server_alone(server, start, connect):
    server.add(gpu_node("n1"))
    server.add(gpu_node("n2"))
    scheduler = connect(start())
    for number in range(5):
        stored = server.add(gpu_pod(f"p{number}", memory=60, compute=40))
        assert scheduler.schedule(stored, ["n1", "n2"])
    again = start()
    assert again.state.ledger.totals["planned"].pods == 5
    assert again.state.ledger.totals["planned"].memory_units == 300
    other = connect(again)
    for number in range(5, 8):
        stored = server.add(gpu_pod(f"p{number}", memory=60, compute=40))
        assert other.schedule(stored, ["n1", "n2"])
    assert not other.schedule(server.add(gpu_pod("p9", memory=60, compute=40)), ["n1", "n2"])


def test_a_plan_without_a_node_is_respected_until_its_pod_is_tried_again(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    plan = {names.PLAN: _slices(uuid_of("n1", 0), 100, 60)}
    halfway = server.add(gpu_pod("halfway", 100, 60, annotations=plan))
    extender = start()
    scheduler = connect(extender)
    other = server.add(gpu_pod("other", 100, 60))
    assert scheduler.choose(other, ["n1"]) is None
    assert scheduler.schedule(halfway, ["n1"]) == "n1"


def test_what_the_node_gave_counts_when_it_differs_from_the_plan(server, start, connect):
    server.add(gpu_node("n1"))
    annotations = {
        names.PLAN: _slices(uuid_of("n1", 0), 100, 60),
        names.ACTUAL: _slices(uuid_of("n1", 1), 100, 60),
    }
    path = "/api/v1/namespaces/default/pods/p"
    server.add(gpu_pod("p", 100, 60, node="n1", annotations=annotations))
    extender = start()
    scheduler = connect(extender)
    asked = server.add(gpu_pod("q", 100, 60))
    # While its containers are starting, either GPU may turn out to be taken.
    assert scheduler.choose(asked, ["n1"]) is None
    server.merge(path, {"status": {"phase": "Running"}})
    server.wait_for(lambda: scheduler.choose(asked, ["n1"]))
    assert not scheduler.bind(asked, "n1")
    found = server.get("/api/v1/namespaces/default/pods/q")
    assert uuid_of("n1", 0) in found["metadata"]["annotations"][names.PLAN]


def test_a_pod_that_came_round_the_extender_counts_on_every_gpu(server, start, connect):
    server.add(gpu_node("n1"))
    server.add(gpu_pod("static", 100, 60, node="n1"))
    scheduler = connect(start())
    answer = scheduler.filter(server.add(gpu_pod("q", 100, 60)), ["n1"])
    assert answer["FailedNodes"] == {"n1": "GPU 0 has the most free memory: 15 of 25 GiB asked"}
    assert scheduler.schedule(server.add(gpu_pod("small", 60, 40)), ["n1"]) == "n1"


def test_a_terminating_pod_holds_its_gpu_until_it_is_gone(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    path = "/api/v1/namespaces/default/pods/p"
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    server.merge(path, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    server.wait_for(lambda: extender.state.ledger.totals["terminating"].pods == 1)
    asked = server.add(gpu_pod("q", 100, 60))
    assert scheduler.choose(asked, ["n1"]) is None
    server.remove(path)
    server.wait_for(lambda: scheduler.choose(asked, ["n1"]))


def test_a_node_without_its_agent_is_left_out_and_comes_back_as_it_was(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    server.add(gpu_node("n1", gpus=1, agent=False))
    server.wait_for(lambda: extender.state.refusal("n1"))
    answer = scheduler.filter(server.add(gpu_pod("q", 16, 10)), ["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": "the node agent is not running: the kubelet offers nothing of its GPUs"
    }
    server.add(gpu_node("n1", gpus=1))
    server.wait_for(lambda: not extender.state.refusal("n1"))
    answer = scheduler.filter(server.add(gpu_pod("r", 100, 60)), ["n1"])
    assert answer["FailedNodes"] == {"n1": "GPU 0 has the most free memory: 15 of 25 GiB asked"}


def test_nothing_is_answered_before_the_cluster_is_known(server, start, connect):
    server.add(gpu_node("n1"))
    gate = server.hold(method="GET", path="/api/v1/pods")
    extender = start(ready=False)
    scheduler = connect(extender)
    status, answer = scheduler.call("GET", "/readyz")
    assert (status, answer["error"]) == (503, "nodes and pods are still being read")
    body = {"Pod": gpu_pod("p"), "NodeNames": ["n1"]}
    assert scheduler.call("POST", "/scheduler/filter", body)[0] == 503
    gate.open()
    server.wait_for(lambda: connect(extender).call("GET", "/readyz")[0] == 200)


def test_missed_changes_are_found_by_a_new_list(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    server.wait_for(lambda: not extender.verbs.expire() and extender.state.pods_on("n1"))
    gate = server.hold(method="WATCH", path="pods")
    server.drop_watches("/api/v1/pods")
    server.remove("/api/v1/namespaces/default/pods/p")
    server.compact()
    gate.open()
    server.wait_for(extender.state.ledger.is_empty)


TIMES = LeaseTimes(lease_s=6.0, renew_s=4.0, retry_s=0.2)


def test_only_the_leader_answers_kube_scheduler_and_another_takes_over(server):
    server.add(gpu_node("n1"))
    replicas = {}
    for name in ("one", "two"):
        server.add(pod(name, "aliquot-system"))
        options = {"listen": "127.0.0.1:0", "listen_tls": "off", "dashboard": "off"}
        options["pod_name"] = name
        replicas[name] = Extender(load(options, {}), server.client(), lease_times=TIMES)
        replicas[name].start()
    try:
        leader = server.wait_for(lambda: _leader(server, replicas))
        other = "two" if leader == "one" else "one"
        server.wait_for(lambda: _marked(server, leader) and not _marked(server, other))
        server.wait_for(lambda: not replicas[other].not_ready())
        stored = server.add(gpu_pod("p", 100, 60))
        with FakeScheduler(replicas[other].port) as wrong:
            body = {"Pod": stored, "NodeNames": ["n1"]}
            status, answer = wrong.call("POST", "/scheduler/filter", body)
            assert status == 503
            assert "does not lead" in answer["error"]
            assert wrong.call("GET", "/readyz")[0] == 200
        with FakeScheduler(replicas[leader].port) as scheduler:
            assert scheduler.schedule(stored, ["n1"]) == "n1"
        replicas[leader].stop()
        server.wait_for(lambda: replicas[other].leader.leads)
        server.wait_for(lambda: _marked(server, other) and not _marked(server, leader))
        with FakeScheduler(replicas[other].port) as scheduler:
            for name, chosen in (("q", "n1"), ("r", None)):
                later = server.add(gpu_pod(name, 100, 60))
                assert scheduler.schedule(later, ["n1"]) == chosen
    finally:
        for replica in replicas.values():
            replica.stop()


def _leader(server, replicas) -> str | None:
    return next((name for name, each in replicas.items() if each.leader.leads), None)


def _marked(server, name: str) -> bool:
    found = server.get(f"/api/v1/namespaces/aliquot-system/pods/{name}")
    return found["metadata"]["labels"].get(LEADER_LABEL) == "true"
