"""`aliquot resize` of a pod, from the command line to the node agent's answer and back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot import cli
from aliquot.kubernetes.paths import pod_path
from aliquot.protocol import assignment, names, resize
from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.resize import Amounts, ResizeAnswer
from simcluster.apiserver import ApiServer, pod

WEB = pod_path("team", "web")
LIMITS = {names.MEMORY_RESOURCE: "16", names.COMPUTE_RESOURCE: "30"}


@pytest.fixture(autouse=True)
def kubeconfig(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    told = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(told))
    monkeypatch.setenv("KUBECONFIG", str(path))
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runs))
    return path


@contextmanager
def agent(server: ApiServer, refusal: str = "") -> Iterator[list[resize.ResizeRequest]]:
    """Answers what stands on the pod, as the node agent does."""
    seen: list[resize.ResizeRequest] = []
    ending = threading.Event()

    def answer() -> None:
        while not ending.is_set():
            stored = server.get(WEB) or {"metadata": {}}
            text = stored["metadata"].get("annotations", {}).get(names.RESIZE)
            if text and text not in {resize.encode(each) for each in seen}:
                request = resize.decode_request(text)
                seen.append(request)
                has = {
                    name: Amounts(each.memory_units or 16, each.compute_percent or 30)
                    for name, each in request.containers.items()
                }
                done = ResizeAnswer(request.id, refusal, {} if refusal else has, request.unit_mib)
                server.merge(
                    WEB, {"metadata": {"annotations": {names.RESIZED: resize.encode(done)}}}
                )
            ending.wait(0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        thread.join()


def add_web(server: ApiServer, **more: Any) -> str:
    made = pod(
        "web", "team", **{"node": "n1", "memory": 16, "compute": 30, "phase": "Running"} | more
    )
    uid: str = server.add(made)["metadata"]["uid"]
    return uid


def test_a_pod_is_resized_and_told_what_it_has(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = add_web(server)
    with agent(server) as seen:
        assert cli.main(["resize", "web", "--memory", "6Gi", "--compute", "50"]) == 0
    assert [each.containers for each in seen] == [{"main": Amounts(24, 50)}]
    told = capsys.readouterr()
    assert told.out == (
        "pod team/web, container main now has 6Gi of memory and 50 percent of compute\n"
    )
    assert told.err == ""
    (patch,) = server.asked("PATCH")
    assert patch.body["metadata"]["uid"] == uid


def test_memory_is_rounded_up_to_the_units_that_the_pod_has(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    actual = Assignment({"main": (Slice("GPU-a", 4, 30),)}, unit_mib=1024)
    add_web(server, annotations={names.ACTUAL: assignment.encode(actual)})
    with agent(server) as seen:
        assert cli.main(["resize", "pod/web", "--memory", "5.5Gi"]) == 0
    assert (seen[0].unit_mib, seen[0].containers) == (1024, {"main": Amounts(6, None)})
    assert "6Gi of memory and 30 percent" in capsys.readouterr().out


def test_a_number_without_a_unit_is_in_units_as_in_manifests(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    with agent(server) as seen:
        assert cli.main(["resize", "pod/web", "--memory", "16"]) == 0
    assert seen[0].containers == {"main": Amounts(16, None)}
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "--memory 16 is that many units of 256 MiB: 4Gi"
    assert "now has 4Gi of memory" in told[1]


@pytest.mark.parametrize("seconds", ["nan", "-3", "inf"])
def test_a_timeout_is_a_number_of_seconds(
    server: ApiServer, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["resize", "web", "--memory", "6Gi", f"--timeout={seconds}"])
    assert ended.value.code == 2
    assert f"invalid seconds value: '{seconds}'" in capsys.readouterr().err


def test_a_refusal_is_passed_on_with_what_is_free(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    with agent(server, "container main: GPU 0 has 8 units free; ask for 24 at most"):
        assert cli.main(["resize", "web", "-n", "team", "--memory", "60Gi"]) == 1
    assert "was not resized: container main: GPU 0 has 8 units free" in capsys.readouterr().err


def test_without_an_answer_the_request_is_withdrawn(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    assert cli.main(["resize", "web", "--memory", "6Gi", "--timeout", "0.3"]) == 1
    assert "the node agent of n1 has not answered" in capsys.readouterr().err
    stored = server.get(WEB)
    assert stored is not None
    assert names.RESIZE not in stored["metadata"]["annotations"]


def test_a_server_in_trouble_is_asked_again(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    server.fail(503, "ServiceUnavailable", method="GET", skip=1, times=2)
    server.lose_answers(method="GET", skip=3)
    with agent(server):
        assert cli.main(["resize", "web", "--memory", "6Gi", "--timeout", "600"]) == 0
    assert "now has 6Gi" in capsys.readouterr().out


def test_an_answer_at_the_last_moment_counts(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    gate = server.hold(method="PATCH", skip=1)
    command = threading.Thread(
        target=cli.main, args=(["resize", "web", "--memory", "6Gi", "--timeout", "0.2"],)
    )
    command.start()
    assert gate.reached.wait(60)
    with agent(server) as seen:
        server.wait_for(lambda: names.RESIZED in server.get(WEB)["metadata"]["annotations"])
        gate.open()
        command.join(60)
    assert len(seen) == 1
    assert "now has 6Gi" in capsys.readouterr().out


def test_a_pod_that_is_replaced_meanwhile_is_not_waited_for(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    codes: list[int] = []
    command = threading.Thread(
        target=lambda: codes.append(
            cli.main(["resize", "web", "--memory", "6Gi", "--timeout", "600"])
        )
    )
    command.start()
    server.wait_for(lambda: server.asked("PATCH"))
    server.wait_for(lambda: names.RESIZE in server.get(WEB)["metadata"]["annotations"])
    server.remove(WEB)
    add_web(server)
    command.join(60)
    assert codes == [1]
    assert "replaced by another one" in capsys.readouterr().err


def container(name: str, limits: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits}}


TWO = [container("a", LIMITS), container("b", LIMITS), container("log", {})]


@pytest.mark.parametrize(
    ("words", "more", "text"),
    [
        (["web", "--memory", "6Gi"], {"node": ""}, "no node yet"),
        (["web", "--memory", "6Gi"], {"phase": "Succeeded"}, "has finished (Succeeded)"),
        (["web", "--memory", "lots"], {}, "not a quantity"),
        (["web", "--memory", "0"], {}, "is nothing"),
        (["web", "--memory", "1e999"], {}, "more than any GPU has"),
        (["web", "--compute", "9" * 5000], {}, "whole percentage"),
        (["web", "--compute", "12.5"], {}, "whole percentage"),
        (["web", "--compute", "5"], {"containers": TWO}, "say which container with -c"),
        (["web", "--compute", "5", "-c", "log"], {"containers": TWO}, "there is a, b"),
        (["web", "--compute", "5"], {"memory": 0, "compute": 0}, "no part of a GPU"),
        (["web", "--compute", "5"], {"memory": 0, "compute": 100}, "has whole GPUs"),
        (["web", "--compute", "5"], {"compute": 130}, "asks for GPUs in a wrong way"),
        (["nobody", "--compute", "5"], {}, "no run nobody on this machine; as a pod: there is no"),
        (["pod/nobody", "--compute", "5"], {}, "there is no pod team/nobody"),
        (["web"], {}, "nothing to change"),
        (["web", "--compute", "5", "--context", "y"], {}, "it has no context 'y'"),
    ],
)
def test_what_cannot_work_is_said_without_touching_the_pod(
    server: ApiServer,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    more: dict[str, Any],
    text: str,
) -> None:
    add_web(server, **more)
    assert cli.main(["resize", *words]) == 2
    assert text in capsys.readouterr().err
    assert server.asked("PATCH") == []


def test_one_of_several_containers_is_resized(server: ApiServer) -> None:
    add_web(server, containers=TWO)
    with agent(server) as seen:
        assert cli.main(["resize", "web", "-c", "b", "--compute", "50%"]) == 0
    assert seen[0].containers == {"b": Amounts(None, 50)}


def test_a_server_that_refuses_is_quoted(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_web(server)
    server.fail(403, "Forbidden", 'User "u" cannot patch resource "pods"', method="PATCH")
    assert cli.main(["resize", "web", "--memory", "6Gi"]) == 1
    assert "cannot patch resource" in capsys.readouterr().err


def test_without_a_cluster_only_runs_are_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["resize", "web", "--compute", "5"]) == 2
    assert "there is no run web; running are: none" in capsys.readouterr().err
    assert cli.main(["resize", "pod/web", "--compute", "5"]) == 2
    assert "name a kubeconfig" in capsys.readouterr().err
