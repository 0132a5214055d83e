"""Pods that tests start, and what they are waited for."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from aliquot.protocol import names
from tests.e2e.cluster import Cluster
from tests.e2e.daemons import await_true
from tests.e2e.images import CLIENT_IMAGE

__all__ = ["Workloads", "deployment", "pod"]

PATIENCE_S = 600.0


def pod(
    name: str,
    *actions: str,
    memory: str | int | None = None,
    compute: int | None = None,
    cpu: str | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container with the test's CUDA program; annotations without our prefix. Without
    `cpu`, it has processors only when nobody else wants them."""
    asked = {names.MEMORY_RESOURCE: memory, names.COMPUTE_RESOURCE: compute}
    limits = {name: str(amount) for name, amount in asked.items() if amount is not None}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {
                f"{names.DOMAIN}/{key}": value for key, value in (annotations or {}).items()
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": CLIENT_IMAGE,
                    "imagePullPolicy": "Never",
                    "args": list(actions),
                    "resources": {"limits": limits, "requests": {"cpu": cpu} if cpu else {}},
                }
            ],
            **spec,
        },
    }


def deployment(name: str, *actions: str, replicas: int, **asked: Any) -> dict[str, Any]:
    """Of pods that `pod` would make, with the label `app`."""
    template = pod(name, *actions, restartPolicy="Always", **asked)
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


class Workloads:
    """The pods of one test; all of them end with it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._started: list[str] = []

    def start(self, *pods: dict[str, Any]) -> str:
        """What kubectl answered. All of them have to be taken: one that is not would be waited for
        in vain, and nobody would read why."""
        return self._apply(pods, check=True)

    def try_to_start(self, *pods: dict[str, Any]) -> str:
        """What kubectl answered, refusals included."""
        return self._apply(pods, check=False)

    def _apply(self, pods: Collection[dict[str, Any]], check: bool) -> str:
        for name in [each["metadata"]["name"] for each in pods]:
            await_true(f"the last {name} is gone", lambda name=name: not self._is_leaving(name))  # type: ignore[misc]
            self._started.append(name)
        listed = {"apiVersion": "v1", "kind": "List", "items": list(pods)}
        return self.cluster.kubectl("apply", "-f", "-", text=json.dumps(listed), check=check)

    def await_alone(self) -> None:
        """Until nobody leaves any more whom an earlier test has ended: what he still has on a node
        counts in what is decided for others."""
        await_true(
            "the pods of earlier tests are gone",
            lambda: (
                not any(
                    "deletionTimestamp" in each["metadata"]
                    for each in self.cluster.api.every("pod")
                )
            ),
        )

    def end(self, *wanted: str) -> None:
        """Until they are gone from the node, too."""
        self._delete(wanted or tuple(self._started), "--wait=true", "--timeout=600s")

    def leave(self) -> None:
        """Ends all of them, and lets them go while the next test runs."""
        self._delete(tuple(self._started), "--wait=false")

    def _delete(self, ended: tuple[str, ...], *options: str) -> None:
        if ended:
            self.cluster.kubectl("delete", "pod", *ended, "--ignore-not-found", *options)
        self._started = [name for name in self._started if name not in ended]

    def _is_leaving(self, name: str) -> bool:
        found = self.cluster.api.find("pod", name)
        return found is not None and "deletionTimestamp" in found["metadata"]

    def await_phase(
        self, name: str, phase: str = "Running", patience_s: float = PATIENCE_S
    ) -> None:
        try:
            await_true(f"pod {name} is {phase}", lambda: self.phase(name) == phase, patience_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.describe(name)}") from None

    def phase(self, name: str) -> str:
        found = self.cluster.api.find("pod", name)
        return str(found["status"].get("phase", "")) if found else ""

    def describe(self, name: str) -> str:
        return self.cluster.kubectl("describe", "pod", name, check=False)

    def await_description(self, name: str, text: str) -> None:
        """As a user finds it, but kubectl is asked only when it will find it."""
        try:
            await_true(f"{name}: {text}", lambda: self._is_told(name, text))
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.describe(name)}") from None
        described = self.describe(name)
        assert text in described, described

    def _is_told(self, name: str, text: str) -> bool:
        events = self.cluster.api.events(name)
        return any(text == each["reason"] or text in each["message"] for each in events)

    def await_line(self, name: str, key: str, patience_s: float = PATIENCE_S) -> Any:
        """The last that the pod's program printed under `key`."""
        found: list[Any] = []

        def printed() -> bool:
            ended = self.phase(name) in ("Failed", "Succeeded")
            found[:] = [line[key] for line in self.lines(name) if key in line]
            if ended and not found:
                raise RuntimeError(f"{name} ended without printing {key}")
            return bool(found)

        try:
            await_true(f"{name} prints {key}", printed, patience_s)
        except (TimeoutError, RuntimeError) as error:
            log = self.cluster.kubectl("logs", name, check=False)
            raise RuntimeError(f"{error}\n{log}\n{self.describe(name)}") from None
        return found[-1]

    def lines(self, name: str) -> list[dict[str, Any]]:
        lines = self.cluster.api.log(name).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def printed_at(self, name: str, key: str) -> datetime:
        """When the runtime took the line that the pod's program printed under `key`."""
        self.await_line(name, key)
        for line in self.cluster.api.log(name, timestamps=True).splitlines():
            time, _, text = line.partition(" ")
            if text.startswith(f'{{"{key}"'):
                return datetime.fromisoformat(time)
        raise AssertionError(f"{name} has printed {key}, and its log has no such line")

    def await_replicas(self, app: str, wanted: int, without: Collection[str] = ()) -> list[str]:
        """The pods of a Deployment, when as many as wanted are ready, and no other ones."""
        found: list[str] = []

        def ready() -> bool:
            found[:] = [
                each["metadata"]["name"]
                for each in self.cluster.api.every("pod", f"app={app}")
                if "deletionTimestamp" not in each["metadata"]
                and each["metadata"]["name"] not in without
                and each["status"]["phase"] == "Running"
                and all(status["ready"] for status in each["status"]["containerStatuses"])
            ]
            return len(found) == wanted

        await_true(f"{wanted} pods of {app} run", ready)
        return found

    def booked(self, *pods: str) -> dict[str, tuple[int, int]]:
        """Memory units and percent that these pods have of each GPU."""
        totals: dict[str, tuple[int, int]] = {}
        for name in pods:
            for gpu, units, percent in self.slices(name):
                memory, compute = totals.get(gpu, (0, 0))
                totals[gpu] = (memory + units, compute + percent)
        return totals

    def slices(self, name: str, annotation: str = names.ACTUAL) -> list[tuple[str, int, int]]:
        """GPU, memory units and percent of each slice that the node has given."""
        text: list[str] = []

        def given() -> bool:
            found = self.cluster.api.find("pod", name)
            text[:] = (
                [found["metadata"].get("annotations", {}).get(annotation, "")] if found else []
            )
            return bool(text and text[0])

        await_true(f"{name} has {annotation}", given)
        containers: dict[str, list[list[Any]]] = json.loads(text[0])["containers"]
        return [(each[0], each[1], each[2]) for slices in containers.values() for each in slices]
