"""What users and administrators see beside verbs: explanation, woken pods, groups, metrics."""

import http.client
import json
import ssl
import threading

from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from simcluster.apiserver import ApiServer
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod, plan_of, uuid_of


def test_a_waiting_pod_is_explained_by_node_and_gpu(server, start, connect):
    server.add(gpu_node("full", gpus=1))
    server.add(gpu_node("gone", agent=False))
    server.add(gpu_node("sick", gpus=1, unusable={0: "Xid 79"}))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 130, 20)), ["full"]) == "full"
    stored = server.add(gpu_pod("q", 48, 10))
    assert scheduler.choose(stored, ["full"]) is None
    server.wait_for(lambda: extender.state.pod_named("default", "q"))
    status, answer = scheduler.call("GET", "/explain?pod=default/q")
    assert status == 200
    assert answer["verdict"] == "its GPUs are free on none of 3 nodes"
    assert answer["asked"][0]["of_each"] == "12 GiB and 10 percent"
    nodes = {each["node"]: each for each in answer["nodes"]}
    assert nodes["full"]["reason"] == "GPU 0 has the most free memory: 7.5 of 12 GiB asked"
    assert nodes["full"]["gpus"] == [
        {
            "index": 0,
            "uuid": uuid_of("full", 0),
            "model": "NVIDIA A100-SXM4-40GB",
            "memory_gib": 40.0,
            "memory_free_gib": 7.5,
            "compute_percent": 100,
            "compute_free_percent": 80,
            "fits": False,
            "wanted": True,
        }
    ]
    assert "agent is not running" in nodes["gone"]["reason"]
    assert nodes["sick"]["gpus"][0]["unusable"] == "Xid 79"
    assert scheduler.call("GET", "/explain?pod=default/nobody")[0] == 404
    assert scheduler.call("GET", "/explain?pod=q")[0] == 400


def test_containers_that_only_fit_one_by_one_are_explained_as_such(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    server.add(gpu_node("n2", gpus=2))
    extender = start()
    scheduler = connect(extender)
    limits = {names.MEMORY_RESOURCE: "100", names.COMPUTE_RESOURCE: "60"}
    containers = [{"name": each, "resources": {"limits": limits}} for each in ("a", "b")]
    server.add(gpu_pod("pair", containers=containers))
    server.wait_for(lambda: extender.state.pod_named("default", "pair"))
    status, answer = scheduler.call("GET", "/explain?pod=default/pair")
    assert status == 200
    assert answer["verdict"].startswith("its GPUs are free on 1 of 2 nodes")
    nodes = {each["node"]: each for each in answer["nodes"]}
    assert nodes["n2"]["fits"]
    assert "not all together" in nodes["n1"]["reason"]


def test_a_pod_that_waits_is_woken_when_its_gpu_is_freed(server, start, connect):
    server.add(gpu_node("n1", gpus=1))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    waits = server.add(gpu_pod("waits", 100, 60))
    other = server.add(gpu_pod("other", 100, 60))
    assert scheduler.choose(waits, ["n1"]) is None
    assert scheduler.choose(other, ["n1"]) is None
    server.wait_for(lambda: extender.state.pod_named("default", "other"))
    server.remove("/api/v1/namespaces/default/pods/p")
    server.wait_for(lambda: _retried(server, "waits"))
    # There is room for one of them only.
    assert not _retried(server, "other")
    woken = "aliquot_extender_pods_woken_total 1.0"
    server.wait_for(lambda: woken in scheduler.call("GET", "/metrics")[1])
    assert scheduler.schedule(waits, ["n1"]) == "n1"


def _retried(server: ApiServer, name: str) -> bool:
    found = server.get(f"/api/v1/namespaces/default/pods/{name}")
    return names.RETRY in found["metadata"]["annotations"]


def _member(server: ApiServer, name: str, size: int, compute: int = 60):
    annotations = {names.GROUP: "training", names.GROUP_SIZE: str(size)}
    return server.add(gpu_pod(name, 90, compute, annotations=annotations))


def test_a_group_is_bound_together(server, start, connect):
    server.add(gpu_node("n1"))
    server.add(gpu_node("n2"))
    nodes = ["n1", "n2"]
    extender = start()
    scheduler = connect(extender)
    first = _member(server, "m0", 3)
    answer = scheduler.filter(first, nodes)
    assert "group training has 1 of 3 pods; it waits for all" in answer["FailedNodes"]["n1"]
    members = [first, _member(server, "m1", 3), _member(server, "m2", 3)]
    server.wait_for(lambda: len(extender.state.group("default", "training")) == 3)
    chosen = {each["metadata"]["name"]: scheduler.choose(each, nodes) for each in members}
    assert all(chosen.values())
    # Others do not get what is held for the group.
    assert scheduler.choose(server.add(gpu_pod("a", 90, 60)), nodes) is not None
    assert scheduler.choose(server.add(gpu_pod("b", 90, 60)), nodes) is None
    answers: dict[str, str] = {}

    def bind(stored):
        name = stored["metadata"]["name"]
        with FakeScheduler(extender.port) as line:
            answers[name] = line.bind(stored, chosen[name])

    threads = [threading.Thread(target=bind, args=(each,)) for each in members]
    for thread in threads[:2]:
        thread.start()
    server.wait_for(lambda: extender.verbs.holdings.under_way == 2)
    assert not server.asked("POST", "binding")
    threads[2].start()
    for thread in threads:
        thread.join(60)
    assert answers == {"m0": "", "m1": "", "m2": ""}
    gpus = [
        plan_of(server.get(f"/api/v1/namespaces/default/pods/m{number}")).containers["main"][0].uuid
        for number in range(3)
    ]
    assert len(set(gpus)) == 3


def test_a_group_that_does_not_fit_holds_nothing(server, start, connect):
    server.add(gpu_node("n1"))
    extender = start()
    scheduler = connect(extender)
    members = [_member(server, f"m{number}", 3) for number in range(3)]
    server.wait_for(lambda: len(extender.state.group("default", "training")) == 3)
    answer = scheduler.filter(members[0], ["n1"])
    assert "3 pods must start together, and not all fit now" in answer["FailedNodes"]["n1"]
    assert extender.state.ledger.is_empty()


def test_a_group_whose_member_goes_away_gives_everything_back(server, start, connect):
    server.add(gpu_node("n1"))
    extender = start()
    scheduler = connect(extender)
    members = [_member(server, f"m{number}", 2) for number in range(2)]
    server.wait_for(lambda: len(extender.state.group("default", "training")) == 2)
    chosen = scheduler.choose(members[0], ["n1"])
    answers: list[str] = []

    def bind():
        with FakeScheduler(extender.port) as line:
            answers.append(line.bind(members[0], chosen))

    waiting = threading.Thread(target=bind)
    waiting.start()
    server.wait_for(lambda: extender.verbs.holdings.under_way)
    server.remove("/api/v1/namespaces/default/pods/m1")
    waiting.join(60)
    assert "another pod of its group has gone or lost its place" in answers[0]
    server.wait_for(extender.state.ledger.is_empty)
    assert not server.asked("POST", "binding")


def test_the_members_of_a_group_are_woken_to_come_for_their_room(server, start, connect):
    server.add(gpu_node("n1"))
    extender = start()
    scheduler = connect(extender)
    first = _member(server, "m0", 2)
    assert scheduler.choose(first, ["n1"]) is None
    second = _member(server, "m1", 2)
    server.wait_for(lambda: len(extender.state.group("default", "training")) == 2)
    assert scheduler.choose(second, ["n1"]) == "n1"
    server.wait_for(lambda: _retried(server, "m0"))


def test_preemption_names_whom_it_takes_on_the_gpu(server, start, connect):
    server.add(gpu_node("n1"))
    for name, gpu, memory, priority in (("low", 0, 60, 1), ("mid", 0, 60, 5), ("big", 1, 120, 3)):
        plan = Assignment({"main": (Slice(uuid_of("n1", gpu), memory, 30),)})
        annotations = {names.PLAN: assignment.encode(plan)}
        server.add(gpu_pod(name, memory, 30, priority=priority, node="n1", annotations=annotations))
    scheduler = connect(start())
    urgent = server.add(gpu_pod("urgent", 110, 40, priority=10))
    assert scheduler.choose(urgent, ["n1"]) is None
    named = {"n1": {"Pods": [{"UID": "uid-default-low"}], "NumPDBViolations": 1}}
    body = {"Pod": urgent, "NodeNameToMetaVictims": named}
    # kube-scheduler counts the node's sums only. Beside `mid` there would still be too little; on
    # the other GPU it takes `big`, who is less important.
    assert scheduler.verb("preempt", body)["NodeNameToMetaVictims"] == {
        "n1": {
            "Pods": [{"UID": "uid-default-low"}, {"UID": "uid-default-big"}],
            "NumPDBViolations": 1,
        }
    }
    modest = server.add(gpu_pod("modest", 110, 40, priority=0))
    assert scheduler.verb("preempt", {**body, "Pod": modest}) == {"NodeNameToMetaVictims": {}}


def test_metrics_tell_of_verbs_rejections_ledger_and_cache(server, start, connect):
    server.add(gpu_node("n1", gpus=2))
    extender = start()
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    assert scheduler.choose(server.add(gpu_pod("q", 170, 60)), ["n1"]) is None
    server.wait_for(lambda: extender.state.ledger.totals["planned"].pods == 1)
    status, text = scheduler.call("GET", "/metrics")
    assert status == 200
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(found['aliquot_extender_verb_seconds_count{verb="filter"}']) == 2
    assert float(found['aliquot_extender_verb_seconds_count{verb="bind"}']) == 1
    assert float(found['aliquot_extender_node_rejections_total{cause="size"}']) == 1
    assert float(found['aliquot_extender_ledger_memory_bytes{stage="planned"}']) == 100 * 256 << 20
    assert float(found["aliquot_extender_gpus_wholly_free"]) == 1
    assert 0 <= float(found['aliquot_extender_cache_age_seconds{resource="pods"}']) < 300
    assert float(found["aliquot_extender_leader"]) == 1
    assert 0 < float(found["aliquot_extender_fragmentation_ratio"]) < 1


def test_the_webhook_answers_over_tls_with_a_certificate_of_its_own(server, start):
    server.add(gpu_node("n1"))
    extender = start(listen_tls="127.0.0.1:0")
    server.wait_for(lambda: extender.tls_port)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    line = http.client.HTTPSConnection("127.0.0.1", extender.tls_port, context=context, timeout=60)
    pod = gpu_pod("p")
    pod["spec"]["containers"][0]["resources"] = {"limits": {names.MEMORY_RESOURCE: "4Gi"}}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "default",
            "userInfo": {"username": "someone"},
            "object": pod,
        },
    }
    try:
        line.request("POST", "/mutate", json.dumps(review))
        answer = line.getresponse()
        assert answer.status == 200
        response = json.loads(answer.read())["response"]
        assert response["allowed"], response
        assert response["patch"]
        line.request("POST", "/mutate", "{}")
        answer = line.getresponse()
        assert answer.status == 400
        assert "AdmissionReview" in json.loads(answer.read())["error"]
        # Every pod reaches this port: nobody may place pods by it, or read why they wait.
        for method, path in (("POST", "/scheduler/bind"), ("GET", "/explain"), ("GET", "/view")):
            line.request(method, path, "{}")
            answer = line.getresponse()
            answer.read()
            assert answer.status == 404
    finally:
        line.close()


def test_a_pod_that_no_node_can_ever_hold_is_told_so_without_being_asked_about(server, start):
    """kube-scheduler finds by its sums that no node will do, and never asks us."""
    server.add(gpu_node("n1"))
    stored = gpu_pod("huge", 400, 30)
    stored["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    server.add(stored)
    start()

    def told() -> list[str]:
        events = server.objects("/api/v1/namespaces/default/events")
        return [each["message"] for each in events if each["reason"] == "GpusNotFree"]

    server.wait_for(told)
    text = "GPU 0 is the largest: 40 of 100 GiB asked on one GPU"
    assert told() == [f"its GPUs are free on no node: {text} (1 node)"]
