"""`aliquot top` of a cluster: asked as `aliquot explain` asks, and errors that say what to do."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aliquot.cli import main
from aliquot.protocol import view
from aliquot.protocol.view import ClusterView
from aliquot.top import source
from aliquot.top.runs import LocalRuns
from simcluster.apiserver import write_kubeconfig
from tests.patience import PATIENCE_S
from tests.unit.top.views import CLUSTER

PROXY = "/api/v1/namespaces/aliquot-system/services/aliquot-extender:scheduler/proxy/view"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine that the tests run on is to be found."""
    (tmp_path / "runs").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(source, "AGENT", "http://127.0.0.1:9")


def test_the_cluster_is_a_table(extender: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--extender", extender.url]) == 0
    shown = capsys.readouterr().out
    assert "gpu-a: 2 GPUs" in shown
    assert any("team/train-0" in line and "15/16Gi" in line for line in shown.splitlines())
    assert "team/large for 10 min" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_filters_and_order_reach_the_table(
    extender: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["top", "--extender", extender.url, "-n", "team", "--gpu", "0", "--sort", "throttled"]
    assert main(words) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "  team/" in line]
    assert names == ["team/train-0", "team/pair/one", "team/pair/two", "team/soon"]
    assert main(["top", "nobody", "--extender", extender.url]) == 0
    assert "nothing matches" in capsys.readouterr().err


def test_json_is_the_view_itself(extender: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--extender", extender.url, "-o", "json"]) == 0
    told = view.decode(capsys.readouterr().out.encode(), ClusterView)
    assert {node.name: node for node in told.nodes}["gpu-b"] == CLUSTER.nodes[0]
    assert told.waiting == CLUSTER.waiting
    assert main(["top", "train", "--extender", extender.url, "-o", "json"]) == 0
    told = view.decode(capsys.readouterr().out.encode(), ClusterView)
    assert [each.pod for each in told.nodes[0].gpus[0].slices] == ["train-0"]


def test_json_needs_nothing_that_draws(extender: Any) -> None:
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from aliquot.cli import main\n"
        f"sys.exit(main(['top', '--extender', {extender.url!r}, '-o', 'json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    assert view.decode(done.stdout, ClusterView).version == "1"


def test_the_extender_is_asked_through_the_api_server(
    extender: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_kubeconfig(extender.url, tmp_path / "config")
    assert main(["top", "--kubeconfig", str(config)]) == 0
    assert extender.asked == [PROXY]
    assert "gpu-a" in capsys.readouterr().out


def test_a_known_cluster_is_looked_at_where_there_is_nothing_else(
    extender: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = write_kubeconfig(extender.url, tmp_path / "config")
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert main(["top"]) == 0
    assert "gpu-a" in capsys.readouterr().out


def test_where_there_is_nothing_it_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalRuns, "has_gpus", lambda _: False)
    assert main(["top"]) == 2
    said = capsys.readouterr().err
    assert "there is nothing to show" in said
    assert "--kubeconfig FILE" in said


def test_as_a_kubectl_plugin_it_means_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-aliquot"])
    assert main(["top"]) == 2
    assert "kubeconfig" in capsys.readouterr().err


def test_an_agent_that_was_named_is_asked(
    extender: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    extender.pages["/view"] = view.encode(CLUSTER.nodes[1])
    assert main(["top", "--agent", extender.url, "-o", "json"]) == 0
    told = view.decode(capsys.readouterr().out.encode(), ClusterView)
    assert told.nodes[0].name == "gpu-a"


def test_the_agent_of_this_node_comes_first(
    extender: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extender.pages["/view"] = view.encode(CLUSTER.nodes[0])
    monkeypatch.setattr(source, "AGENT", extender.url)
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(extender.url, tmp_path / "config")))
    assert main(["top"]) == 0
    assert "it has fallen off the bus" in capsys.readouterr().out
    assert PROXY not in extender.asked


@pytest.mark.parametrize(
    ("words", "status", "code", "said"),
    [
        ([], 404, 1, "as new as this command"),
        ([], 403, 1, "services/proxy"),
        (["--watch"], 200, 2, "the output is none"),
        (["--watch", "-o", "json"], 200, 2, "leave out -o json"),
        (["--watch", "--interval", "0"], 200, 2, "0.5 seconds at least"),
    ],
)
def test_errors_say_what_to_do(
    extender: Any,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    status: int,
    code: int,
    said: str,
) -> None:
    extender.status = status
    assert main(["top", "--extender", extender.url, *words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://127.0.0.1:9", 1, "no node agent answers at http://127.0.0.1:9"),
        ("localhost:9410", 2, "write it like http://"),
    ],
)
def test_an_agent_that_is_not_there_is_named(
    url: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--agent", url]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"hello", b"{}", b"\xff"])
def test_what_is_no_agent_is_said_to_be_none(
    extender: Any, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    extender.pages["/view"] = body
    assert main(["top", "--agent", extender.url]) == 1
    assert "is no node agent" in capsys.readouterr().err


def test_a_picture_can_be_written(extender: Any, tmp_path: Path) -> None:
    picture = tmp_path / "top.svg"
    assert main(["top", "--extender", extender.url, "--svg", str(picture)]) == 0
    text = picture.read_text()
    assert text.startswith("<svg")
    assert "train-0" in text
    assert "font-face" not in text, "it loads nothing from elsewhere"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._master, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aliquot.cli", *words],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
        )
        os.close(terminal)
        self.text = ""

    def read_until(self, wanted: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            assert time.monotonic() < deadline, f"no {wanted!r} in {self.text!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 1 << 16).decode(errors="replace")
                except OSError:  # the terminal is closed
                    assert wanted in self.text, self.text
                    return

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_goes_on_until_it_is_interrupted_and_leaves_the_terminal_as_it_was(
    extender: Any, tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    words = ["top", "--watch", "--interval", "0.5", "--extender", extender.url]
    terminal = Terminal(words, environment)
    try:
        terminal.read_until("\x1b[?1049h")
        terminal.read_until("train-0")
        extender.pages["/view"] = view.encode(
            ClusterView(taken_at=1.0, version="1", nodes=(CLUSTER.nodes[0],))
        )
        terminal.text = ""
        terminal.read_until("gpu-b: 1 GPU")
        extender.status = 500
        terminal.read_until("as of")
        terminal.process.send_signal(number)
        terminal.read_until("\x1b[?1049l")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert "Traceback" not in terminal.text
    finally:
        terminal.close()
