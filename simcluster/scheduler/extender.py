"""kube-scheduler's end of an extender: its verbs over HTTP, in Go's JSON."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Extender", "ExtenderError", "Filtered"]

Object = dict[str, Any]


class ExtenderError(Exception):
    """It could not be asked, or it failed; the pod is tried again after a while."""


@dataclass(frozen=True, slots=True)
class Filtered:
    passed: list[str]
    failed: dict[str, str]
    """Why, by node; those that no change elsewhere could help are among them."""


class Extender:
    """`url` is what `urlPrefix` is in a KubeSchedulerConfiguration; nodes go by name only
    (`nodeCacheCapable`). For one thread."""

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        found = urlsplit(url)
        self._prefix = found.path.rstrip("/")
        self._line = http.client.HTTPConnection(found.hostname or "", found.port, timeout=timeout_s)

    def close(self) -> None:
        self._line.close()

    def filter(self, pod: Object, nodes: list[str]) -> Filtered:
        answer = self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])
        failed = answer.get("FailedNodes") or {}
        return Filtered(
            answer.get("NodeNames") or [],
            {**failed, **(answer.get("FailedAndUnresolvableNodes") or {})},
        )

    def prioritize(self, pod: Object, nodes: list[str]) -> dict[str, int]:
        answer = self._ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        return {each["Host"]: each["Score"] for each in answer}

    def bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        answer = self._ask(
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])

    def _ask(self, verb: str, body: Object) -> Any:
        try:
            self._line.request(
                "POST",
                f"{self._prefix}/{verb}",
                json.dumps(body),
                {"Content-Type": "application/json"},
            )
            answer = self._line.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            # The next request begins with a new connection.
            self._line.close()
            raise ExtenderError(f"Post {verb!r}: {error}") from None
        if answer.status != http.HTTPStatus.OK:
            raise ExtenderError(
                f"failed {verb} with extender: {answer.status} {text.decode(errors='replace')}"
            )
        return json.loads(text)
