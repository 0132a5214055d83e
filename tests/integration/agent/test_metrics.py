"""The agent's metrics as Prometheus meets them: complete from allocation on, named as it wants."""

from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.telemetry.metrics import ROWS, SLICE
from simcluster.kubelet import Kubelet, Pod
from tests.agentprocess import AgentProcess
from tests.patience import eventually
from tests.promtool import promtool

# Of what has not happened (yet), and of what an agent without an API server does not know.
ABSENT = {
    "aliquot_breaches_total",
    "aliquot_container_plan_differs",
    "aliquot_container_shim_missing_processes",
    "aliquot_gpu_advertised_elsewhere",
    "aliquot_gpu_xids_total",
}


def series(page: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_all_series_are_there_before_a_container_has_used_anything(
    kubelet: Kubelet, agent: AgentProcess
) -> None:
    kubelet.run(Pod.asking("first", memory=16, compute=30, namespace="team-a"))
    kubelet.run(Pod.asking("second", memory=8, compute=10, namespace="team-b"))

    def page() -> str:
        """Once GPUs were probed, and both containers are known by name."""
        text = agent.get("/metrics")[1]
        expected = {row.name for row in ROWS} - ABSENT
        found = series(text)
        complete = expected <= found.keys() and all(
            len(found[row.name]) == 2 for row in ROWS if row.labels == SLICE
        )
        return text if complete else ""

    found = series(eventually(page))
    for row in ROWS:
        for labels in found.get(row.name, ()):
            assert labels.keys() == set(row.labels)
    names = {(each["namespace"], each["pod"], each["container"])
             for each in found["aliquot_container_memory_used_bytes"]}  # fmt: skip
    assert names == {("team-a", "first", "main"), ("team-b", "second", "main")}


def test_prometheus_finds_nothing_to_object_to(kubelet: Kubelet, agent: AgentProcess) -> None:
    kubelet.run(Pod.asking("one", memory=16, compute=30))
    status, page = agent.get("/metrics")
    assert status == 200
    assert promtool("check", "metrics", stdin=page) == ""
