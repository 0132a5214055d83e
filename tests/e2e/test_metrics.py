"""Prometheus reads what agents and extender tell."""

import json
import shutil
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from tests.e2e.daemons import Daemon, await_true
from tests.e2e.installation import Installation
from tests.e2e.workloads import Workloads, pod

ADDRESS = "127.0.0.1:9090"


def ask(path: str, **query: str) -> dict[str, object]:
    url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as response:
        answer: dict[str, object] = json.load(response)
    return answer


def test_prometheus_scrapes_agents_and_extenders(
    installed: Installation, workloads: Workloads, tmp_path: Path
) -> None:
    program = shutil.which("prometheus")
    assert program is not None, "the preflight asks for it"
    workloads.start(pod("measured", "see", "wait", memory="1Gi", compute=10))
    workloads.await_line("measured", "see")
    targets = {
        component: [f"{each['status']['podIP']}:{port}" for each in installed.pods(component)]
        for component, port in (("agent", 9410), ("extender", 9420))
    }
    jobs = [
        {"job_name": name, "scrape_interval": "1s", "static_configs": [{"targets": addresses}]}
        for name, addresses in targets.items()
    ]
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": jobs}))
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
        expected = sum(map(len, targets.values()))

        def all_up() -> bool:
            try:
                text = json.dumps(ask("query", query="sum(up)"))
            except OSError:
                return False  # not listening yet
            return f'"{expected}"' in text

        prometheus.await_answer(all_up)
        selector = 'count({__name__=~"aliquot_.*", pod="measured"})'
        await_true(
            "the pod has metrics",
            lambda: "value" in json.dumps(ask("query", query=selector)),
        )
    finally:
        prometheus.stop()
