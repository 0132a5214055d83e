"""What the token of an agent or an extender is worth to a thief."""

from aliquot.protocol import names
from tests.e2e.installation import Installation
from tests.e2e.thief import Thief
from tests.e2e.workloads import Workloads, pod

NOTE = {"metadata": {"annotations": {f"{names.DOMAIN}/note": "x"}}}
FOREIGN = {"metadata": {"annotations": {"example.com/note": "x"}}}
LABEL = {"metadata": {"labels": {"a": "b"}}}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}


def test_an_agents_token_writes_annotations_of_its_node_only(
    installed: Installation, workloads: Workloads
) -> None:
    own, other = installed.cluster.nodes[:2]
    workloads.start(*(pod(f"on-{n.name}", "wait", nodeName=n.name) for n in (own, other)))
    for node in (own, other):
        workloads.await_phase(f"on-{node.name}")
    agent = Thief(installed.cluster, installed.agent_on(own.name))
    pods = "namespaces/default/pods"
    for mine, foreign in (
        (f"nodes/{own.name}", f"nodes/{other.name}"),
        (f"{pods}/on-{own.name}", f"{pods}/on-{other.name}"),
    ):
        assert agent.patch(mine, NOTE) == ""
        assert "own node and its pods only" in agent.patch(foreign, NOTE)
        assert "annotations only" in agent.patch(mine, LABEL)
        assert "of aliquot.dev only" in agent.patch(mine, FOREIGN)
    assert "annotations only" in agent.patch(f"{pods}/on-{own.name}", IMAGE)
    assert "cannot create resource" in agent.evict("default", f"on-{own.name}")


def test_an_extenders_token_writes_annotations_of_pods_only(
    installed: Installation, workloads: Workloads
) -> None:
    workloads.start(pod("victim", "wait"))
    extender = Thief(installed.cluster, installed.pods("extender")[0]["metadata"]["name"])
    victim = "namespaces/default/pods/victim"
    assert extender.patch(victim, NOTE) == ""
    assert "annotations only" in extender.patch(victim, IMAGE)
    assert "its own pod" in extender.patch(victim, LABEL)
    assert "of aliquot.dev only" in extender.patch(victim, FOREIGN)
    node = installed.cluster.nodes[0].name
    assert "cannot patch resource" in extender.patch(f"nodes/{node}", NOTE)
