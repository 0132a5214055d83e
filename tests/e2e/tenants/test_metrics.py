"""Prometheus reads what agents and extender tell."""

import json
import shutil
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.daemons import Daemon, await_true
from tests.e2e.installation import Installation
from tests.e2e.places import CHECKOUT
from tests.e2e.workloads import Workloads, pod

MONITORS = CHECKOUT / "deploy/components/monitoring/monitors.yaml"
ADDRESS = "127.0.0.1:9090"
GIB = 1 << 30


def ask(path: str, **query: str) -> dict[str, Any]:
    url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def value_of(query: str) -> float | None:
    """Of a query that has one answer; None while it has none."""
    result = ask("query", query=query)["data"]["result"]
    return float(result[0]["value"][1]) if len(result) == 1 else None


def scraping(installed: Installation) -> dict[str, Any]:
    """What the Prometheus operator would make of our monitors, for this cluster's pods."""
    jobs = []
    for monitor in yaml.safe_load_all(MONITORS.read_text()):
        endpoints = "podMetricsEndpoints" if monitor["kind"] == "PodMonitor" else "endpoints"
        component = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        [endpoint] = monitor["spec"][endpoints]
        targets = [
            f"{each['status']['podIP']}:{port['containerPort']}"
            for each in installed.pods(component)
            for port in each["spec"]["containers"][0]["ports"]
            if port["name"] == endpoint["port"]
        ]
        jobs.append(
            {
                "job_name": component,
                "scheme": endpoint.get("scheme", "http"),
                "tls_config": {
                    "insecure_skip_verify": endpoint.get("tlsConfig")
                    == {"insecureSkipVerify": True}
                },
                "honor_labels": endpoint["honorLabels"],
                "scrape_interval": "1s",
                "static_configs": [{"targets": targets}],
            }
        )
    return {"scrape_configs": jobs}


def test_prometheus_scrapes_agents_and_extenders(
    installed: Installation, workloads: Workloads, tmp_path: Path
) -> None:
    program = shutil.which("prometheus")
    assert program is not None, "the preflight asks for it"
    workloads.start(pod("measured", "see", "fill", "wait", memory="1Gi", compute=10))
    taken_mib = workloads.await_line("measured", "fill")["taken_mib"]
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump(scraping(installed)))
    prometheus = Daemon(
        "prometheus",
        [
            *(program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
            f"--web.listen-address={ADDRESS}",
        ],
        installed.cluster.logs,
    )
    prometheus.start()
    try:
        expected = len(installed.pods("agent")) + len(installed.pods("extender"))

        def all_up() -> bool:
            try:
                text = json.dumps(ask("query", query="sum(up)"))
            except OSError:
                return False  # not listening yet
            return f'"{expected}"' in text

        prometheus.await_answer(all_up)
        ours = '{namespace="default", pod="measured", container="main"}'
        for query, expected_value in (
            (f"aliquot_container_memory_limit_bytes{ours}", GIB),
            (f"aliquot_container_compute_share_ratio{ours}", 0.1),
            (f"aliquot_container_memory_refusals_total{ours}", 1),
            (f"aliquot_container_memory_used_bytes{ours} >= {taken_mib << 20} <= bool {GIB}", 1),
            (f"aliquot_container_plan_differs{ours}", 0),
            ("sum(aliquot_gpu_memory_bytes)", 4 * 80 * GIB),
            ("sum(aliquot_gpu_memory_held_bytes)", GIB),
            ("sum(aliquot_gpu_compute_held_ratio)", 0.1),
            ("sum(aliquot_gpu_usable)", 4),
            ("sum(aliquot_extender_leader)", 1),
            ("min(aliquot_extender_gpus)", 4),
            ("min(aliquot_extender_nodes)", 2),
            ('max(aliquot_extender_ledger_memory_bytes{stage="actual"})', GIB),
        ):
            await_true(
                f"{query} is {expected_value}",
                lambda query=query, wanted=expected_value: (  # type: ignore[misc]
                    value_of(query) == pytest.approx(wanted)
                ),
            )
    finally:
        prometheus.stop()
