"""The extender's metrics as Prometheus meets them."""

from prometheus_client.parser import text_string_to_metric_families

from scheduler_ext.metrics import ROWS
from tests.extender_cluster import gpu_node, gpu_pod
from tests.promtool import promtool


def test_every_metric_of_the_table_is_there_and_prometheus_has_nothing_to_object_to(
    server, start, connect
):
    server.add(gpu_node("n1", gpus=2))
    server.add(gpu_node("n2", agent=False))
    server.add(gpu_node("n3", gpus=0))
    extender = start(listen_tls="127.0.0.1:0")
    server.wait_for(lambda: extender.tls_port)
    scheduler = connect(extender)
    assert scheduler.schedule(server.add(gpu_pod("p", 100, 60)), ["n1"]) == "n1"
    assert scheduler.choose(server.add(gpu_pod("q", 170, 60)), ["n1"]) is None
    status, page = scheduler.call("GET", "/metrics")
    assert status == 200
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found.setdefault(name, set()).update(sample.labels.keys() - {"le"})
    assert {name: labels for name, labels in found.items() if name.startswith("aliquot_")} == {
        row.name: set(row.labels) for row in ROWS
    }
    assert 'aliquot_extender_node_left_out{node="n2"} 1.0' in page
    # A node that has no GPU is not missed.
    assert 'node="n3"' not in page
    assert "aliquot_extender_waiting_pods 1.0" in page
    assert "aliquot_extender_ready 1.0" in page
    assert promtool("check", "metrics", stdin=page) == ""
