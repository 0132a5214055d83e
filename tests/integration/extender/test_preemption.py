"""Preemption over HTTP: whom the extender adds, and what it knows of disruption budgets."""

from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from tests.extender_cluster import gpu_node, gpu_pod, uuid_of

BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"


def test_disruption_budgets_are_watched_and_respected(server, start, connect):
    server.add(gpu_node("n1"))
    for name, gpu, priority in (("low", 0, 1), ("high", 1, 5)):
        plan = Assignment({"main": (Slice(uuid_of("n1", gpu), 120, 30),)})
        annotations = {names.PLAN: assignment.encode(plan)}
        labels = {"app": name}
        server.add(
            gpu_pod(
                name,
                120,
                30,
                priority=priority,
                node="n1",
                annotations=annotations,
                labels=labels,
            )
        )
    scheduler = connect(start())
    urgent = server.add(gpu_pod("urgent", 110, 40, priority=10))
    body = {"Pod": urgent, "NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}}

    def victims() -> dict:
        return scheduler.verb("preempt", body)["NodeNameToMetaVictims"]["n1"]

    assert victims() == {"Pods": [{"UID": "uid-default-low"}], "NumPDBViolations": 0}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}},
        "status": {"disruptionsAllowed": 0},
    }
    server.put(BUDGET, budget)
    server.wait_for(
        lambda: victims() == {"Pods": [{"UID": "uid-default-high"}], "NumPDBViolations": 0}
    )
    # When everybody is protected, kube-scheduler is told so that it may prefer another node.
    server.put(BUDGET, {**budget, "spec": {"minAvailable": 2, "selector": {}}})
    server.wait_for(
        lambda: victims() == {"Pods": [{"UID": "uid-default-low"}], "NumPDBViolations": 1}
    )
