"""`aliquot explain` prints what a real extender answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from aliquot.cli import main
from scheduler_ext.extender import Extender
from simcluster.apiserver import ApiServer, write_kubeconfig
from tests.extender_cluster import gpu_node, gpu_pod


def test_a_waiting_pods_reasons_are_a_table(
    server: ApiServer,
    start: Callable[..., Extender],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    server.add(gpu_node("n1", memory_units=40))
    server.add(gpu_node("gone", agent=False))
    server.add(gpu_pod("large", memory=48, compute=10))
    url = f"http://127.0.0.1:{start().port}"
    assert main(["explain", "large", "--extender", url]) == 0
    said = capsys.readouterr().out
    assert "main: 12 GiB" in said
    assert "its GPUs are free on none of 2 nodes" in said
    line = next(line for line in said.splitlines() if line.startswith("n1"))
    assert "10 of 10 GiB" in line
    assert "GPU 0 is the largest: 10 of 12 GiB asked" in line
    assert any(line.startswith("gone") for line in said.splitlines())

    assert main(["explain", "large", "--extender", url, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["pod"] == "default/large"

    assert main(["explain", "nobody", "--extender", url]) == 2
    assert "there is no pod default/nobody" in capsys.readouterr().err


def test_where_the_extender_is_must_be_said_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "p", "--extender", "extender"]) == 2
    assert "NAMESPACE/SERVICE:PORT" in capsys.readouterr().err


@contextmanager
def proxy(asked: list[str]) -> Iterator[str]:
    """An API server that answers for a service behind it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"pod": "team/p", "verdict": "it is bound to n1", "nodes": []})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()


def test_the_extender_is_asked_through_the_api_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    with proxy(asked) as url:
        config = write_kubeconfig(url, tmp_path / "config")
        assert main(["explain", "p", "-n", "team", "--kubeconfig", str(config)]) == 0
    assert "team/p: it is bound to n1" in capsys.readouterr().out
    service = "/api/v1/namespaces/aliquot-system/services/aliquot-extender:scheduler"
    assert asked == [f"{service}/proxy/explain?pod=team/p"]
