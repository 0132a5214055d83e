"""The harness itself: what Aliquot is tested on works as a cluster does."""

from typing import Any

from tests.e2e.cluster import Cluster
from tests.e2e.daemons import await_true
from tests.e2e.images import CLIENT_IMAGE

SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
ASK = "import urllib.request as u; print(u.urlopen('http://greeter.default.svc:8000/').status)"


def container(command: str) -> dict[str, Any]:
    return {
        "name": "main",
        "image": CLIENT_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", command],
    }


def test_a_daemonset_runs_on_every_node_and_answers_through_its_service(cluster: Cluster) -> None:
    labels = {"app": "greeter"}
    cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "greeter", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container(SERVER)],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "greeter", "namespace": "default"},
            "spec": {"selector": labels, "ports": [{"port": 8000}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "asker", "namespace": "default"},
            "spec": {"restartPolicy": "OnFailure", "containers": [container(ASK)]},
        },
    )
    cluster.kubectl("rollout", "status", "daemonset/greeter", "--timeout=600s")
    placed = {each["spec"]["nodeName"] for each in cluster.api.every("pod", "app=greeter")}
    assert placed == {node.name for node in cluster.nodes}
    await_true("the Service answers", lambda: "200" in cluster.api.log("asker"))
    cluster.kubectl("delete", "daemonset/greeter", "service/greeter", "pod/asker")
