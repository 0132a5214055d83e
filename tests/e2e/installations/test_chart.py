"""What helm and the API server say of chart and overlays; `make check` compares the two."""

import subprocess

import pytest

from deploy import chart, check
from tests.e2e.binaries import binaries
from tests.e2e.cluster import Cluster


def test_an_unknown_kind_of_gpu_is_refused_with_the_choice() -> None:
    made = subprocess.run(
        [binaries()["helm"], "template", chart.CHART, "--set=gpus=amd", "--kube-version=1.36.0"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode
    assert "gpus" in made.stderr
    assert "simulated" in made.stderr


@pytest.mark.parametrize("overlay", check.OVERLAYS)
def test_the_api_server_takes_every_overlay(cluster: Cluster, overlay: str) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "aliquot-system"},
    }
    if cluster.api.find("namespace", "aliquot-system") is None:
        cluster.apply(namespace)  # a dry run makes none, and what is in it would be refused
    path = str(check.HERE / "overlays" / overlay)
    answer = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", path)
    assert "daemonset.apps/aliquot-agent" in answer
