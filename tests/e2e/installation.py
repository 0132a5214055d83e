"""Aliquot on the test cluster, installed as docs/install.md says, and what its node agents see."""

import json
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from aliquot.protocol import names
from tests.e2e.cluster import Cluster
from tests.e2e.daemons import await_true
from tests.e2e.instructions import INSTALL_PAGE, kubectl_commands
from tests.e2e.node import Node
from tests.e2e.places import CHECKOUT

__all__ = ["GPUS_A_NODE", "NAMESPACE", "OVERLAY", "UNITS_A_GPU", "Installation"]

NAMESPACE = "aliquot-system"
OVERLAY = "deploy/overlays/simulated"
"""As docs name it."""
STATE = "/run/aliquot-simulated/node"
WORKLOADS = (
    ("daemonset", "aliquot-agent"),
    ("deployment", "aliquot-extender"),
    ("deployment", "aliquot-scheduler"),
)
ROLLED_OUT = {
    "daemonset": ("updatedNumberScheduled", "numberAvailable"),
    "deployment": ("replicas", "updatedReplicas", "availableReplicas"),
}
"""Counts in a workload's status; when all of them are as wanted, nothing old is left."""
GPUS_A_NODE = 2
UNITS_A_GPU = 320
"""80 GiB in units of 256 MiB."""


class Installation:
    def __init__(
        self,
        cluster: Cluster,
        overlay: str | Path = OVERLAY,
        gpu_nodes: Sequence[Node] | None = None,
    ) -> None:
        self.cluster = cluster
        self._overlay = overlay
        self._gpu_nodes = cluster.nodes if gpu_nodes is None else gpu_nodes

    def install(self) -> None:
        for words in kubectl_commands(INSTALL_PAGE, "2. The manifests"):
            self._kubectl(words)
        self.await_ready()

    def _kubectl(self, words: Sequence[str]) -> None:
        """A documented command, for the overlay that is installed here."""
        self.cluster.kubectl(*(str(self._overlay) if word == OVERLAY else word for word in words))

    def await_ready(self) -> None:
        """Until pods with a share of a GPU can start on every node that has GPUs."""
        for kind, name in WORKLOADS:
            await_true(f"{name} is rolled out", lambda each=(kind, name): self.is_rolled_out(*each))  # type: ignore[misc]
        await_true("someone leads", self._is_led)
        for node in self._gpu_nodes:
            await_true(
                f"{node.name} advertises its GPUs",
                lambda node=node: self.allocatable(node) == GPUS_A_NODE * UNITS_A_GPU,  # type: ignore[misc]
            )

    def allocatable(self, node: Node, resource: str = names.MEMORY_RESOURCE) -> int:
        found = self.cluster.api.find("node", node.name)
        return int(found["status"]["allocatable"].get(resource, 0)) if found else 0

    def is_rolled_out(self, kind: str, name: str) -> bool:
        """What `kubectl rollout status` waits for."""
        found = self.cluster.api.find(kind, name, NAMESPACE)
        if found is None:
            return False
        status, seen = found["status"], found["status"].get("observedGeneration")
        wanted = found["spec"].get("replicas") or status.get("desiredNumberScheduled")
        return seen == found["metadata"]["generation"] and all(
            status.get(count) == wanted for count in ROLLED_OUT[kind]
        )

    def _is_led(self) -> bool:
        slices = self.cluster.api.every(
            "endpointslice", "kubernetes.io/service-name=aliquot-extender", NAMESPACE
        )
        return any(endpoint for each in slices for endpoint in each.get("endpoints") or ())

    def uninstall(self) -> None:
        delete, *_ = kubectl_commands(INSTALL_PAGE, "Removing it")
        self._kubectl(delete)

    def clean_nodes(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """After uninstalling, by whatever road: what the agents have put on the nodes. `meanwhile`
        is done once cleaning has begun, before it is waited for."""
        _, begin, *rest = kubectl_commands(INSTALL_PAGE, "Removing it")
        self._kubectl(begin)
        meanwhile()
        for words in rest:
            self._kubectl(words)

    def pods(self, component: str) -> list[dict[str, Any]]:
        return self.cluster.api.every("pod", f"app.kubernetes.io/component={component}", NAMESPACE)

    def agent_on(self, node: str) -> str:
        (name,) = [
            each["metadata"]["name"]
            for each in self.pods("agent")
            if each["spec"]["nodeName"] == node and "deletionTimestamp" not in each["metadata"]
        ]
        return str(name)

    def kill_container(self, node: Node, pod_name: str) -> None:
        """SIGKILL to the first process of each container of one of our pods."""
        found = self.cluster.api.find("pod", pod_name, NAMESPACE)
        assert found is not None
        before = _restarts(found)
        for status in found["status"]["containerStatuses"]:
            container = status["containerID"].removeprefix("containerd://")
            node.kill(container)

        def came_back() -> bool:
            again = self.cluster.api.find("pod", pod_name, NAMESPACE)
            return again is None or _restarts(again) > before

        await_true(f"{pod_name} is started again", came_back)

    def simulated(self, node: Node) -> dict[str, Any]:
        """GPUs and processes as the simulator knows them: exact, whatever anybody claims."""
        shown = node.machine.run(
            *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "aliquot.cli"),
            *("sim", "status", "-o", "json", f"--state={STATE}"),
        )
        status: dict[str, Any] = json.loads(shown)
        return status

    def processes(self, pod: str) -> list[dict[str, Any]]:
        """Those of a pod that have a GPU, as the simulator knows them."""
        return self._processes(pod, self.simulated(self.cluster.node_of(pod)))

    def _processes(self, pod: str, status: dict[str, Any]) -> list[dict[str, Any]]:
        node, uid = self.cluster.node_of(pod), self.cluster.api.pod(pod)["metadata"]["uid"]
        return [
            process
            for process in status["processes"]
            if uid in node.machine.run("cat", f"/proc/{process['host_pid']}/cgroup", check=False)
        ]

    def fault(self, node: Node, gpu: int, *faults: str) -> None:
        node.machine.run(
            *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "aliquot.cli"),
            *("sim", "fault", f"gpu{gpu}", *faults, f"--state={STATE}"),
        )

    def metrics(self, component: str) -> str:
        """Of all pods of a component, as Prometheus would read them."""
        texts = []
        for each in self.pods(component):
            port = {"agent": 9410, "extender": 9420}[component]
            address = f"http://{each['status']['podIP']}:{port}/metrics"
            with urllib.request.urlopen(address, timeout=60) as answer:
                texts.append(answer.read().decode())
        return "\n".join(texts)

    def metric(self, component: str, name: str, **labels: str) -> list[float]:
        """Every value of a metric that all pods of a component have with these labels."""
        families = text_string_to_metric_families(self.metrics(component))
        return [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def busy_ns(self, *pods: str) -> tuple[int, list[int]]:
        """The clock of the GPUs of one node, and how long they have worked for each of these pods
        by then."""
        status = self.simulated(self.cluster.node_of(pods[0]))
        return status["devices"][0]["time_ns"], [
            sum(
                usage["busy_ns"]
                for process in self._processes(pod, status)
                for usage in process["usages"]
            )
            for pod in pods
        ]


def _restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
