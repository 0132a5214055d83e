"""`aliquot top` shows what a real extender tells of the cluster."""

from collections.abc import Callable

import pytest

from aliquot.cli import main
from aliquot.protocol import view
from aliquot.protocol.view import ClusterView
from scheduler_ext.extender import Extender
from simcluster.apiserver import ApiServer
from tests.extender_cluster import gpu_node, gpu_pod
from tests.patience import eventually


def test_nodes_and_who_waits_are_shown(
    server: ApiServer,
    start: Callable[..., Extender],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    server.add(gpu_node("n1", memory_units=40))
    server.add(gpu_pod("large", memory=48, compute=10))
    url = f"http://127.0.0.1:{start().port}"

    def told() -> ClusterView | None:
        capsys.readouterr()
        assert main(["top", "--extender", url, "-o", "json"]) == 0
        found = view.decode(capsys.readouterr().out.encode(), ClusterView)
        return found if found.nodes and found.waiting else None

    found = eventually(told)
    assert [node.name for node in found.nodes] == ["n1"]
    assert [each.pod for each in found.waiting] == ["large"]

    assert main(["top", "--extender", url]) == 0
    shown = capsys.readouterr().out
    assert "GPU 0" in shown
    assert "n1: 2 GPUs, 0 containers, 1 pod waiting" in shown
    assert "default/large for" in shown
    assert found.waiting[0].reason.split(":")[0] in " ".join(shown.split())
