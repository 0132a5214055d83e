"""The benchmark reads lists, reproduces itself, is judged, and says what is wrong with a file."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import placement
from bench.placement_files import Event, InputError, Pod
from bench.placement_judge import faults
from bench.placement_variants import VARIANTS, vary
from scheduler_ext.placement import Decision, Gpu, Node, Request

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"node-{n},32000,131072,{4 if n % 2 else 2},{'A' if n % 3 else 'B'}\n" for n in range(8)
)
SHAPES = (
    "4000,4000,1,1000,",
    "2000,2000,1,470,",
    "1000,1000,1,810,A|B",
    "0,0,2,1000,",
    "500,500,0,0,",
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"pod-{n},{SHAPES[n % 5]}\n" for n in range(40)
)
ARRIVALS = "seq,pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"{n},pod-{n},{SHAPES[n % 5]}\n" for n in range(60)
)
EVENTS = "time,seq,event,pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"{n},{n},arrive,p{n},{SHAPES[n % 5]}\n"
    + (f"{n}.5,{n - 9},leave,p{n - 9},{SHAPES[(n - 9) % 5]}\n" if n >= 9 else "")
    for n in range(50)
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "arrivals.csv").write_text(ARRIVALS)
    (tmp_path / "events.csv.gz").write_bytes(gzip.compress(EVENTS.encode()))
    return tmp_path


@pytest.mark.parametrize("policy", placement.POLICIES)
@pytest.mark.parametrize("protocol", ["fill", "churn"])
def test_every_policy_keeps_the_rules_in_both_protocols(
    files: Path, policy: str, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", f"{files}/nodes.csv", "--pods", f"{files}/pods.csv"]
    arguments += ["--protocol", protocol, "--policy", policy, "--seeds", "1-2"]
    assert placement.main([*arguments, "--judge", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [run["seed"] for run in report["runs"]] == [1, 2]
    assert 30 < report["gpu_allocated_percent"] <= 100


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "half-in-blocks"])
def test_a_variant_changes_the_workload_the_same_way_each_time(
    files: Path, variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", f"{files}/nodes.csv", "--pods", f"{files}/pods.csv", "--seeds", "1"]
    reports = []
    for _ in range(2):
        assert placement.main([*arguments, "--variant", variant, "--judge", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        del report["runs"][0]["ms_per_decision"]
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["variant"] == variant


def test_half_of_the_demand_can_be_put_into_eight_gpu_pods() -> None:
    shared = [Pod(f"shared-{n}", Request(1000, 1000, 1, 400, 400)) for n in range(100)]
    blocks = [Pod("block", Request(8000, 8000, 8, 1000, 1000))]
    varied = vary(shared + blocks, [], "half-in-blocks")
    in_blocks = sum(pod.gpu_milli for pod in varied if pod.request.gpus == 8)
    assert in_blocks == sum(pod.gpu_milli for pod in shared)


def test_pods_can_be_pinned_as_others_of_the_list_are() -> None:
    pods = [Pod(f"free-{n}", Request(0, 0, 1, 400, 400)) for n in range(270)]
    pods += [Pod(f"p{n}", replace(pods[0].request, models=frozenset("AB"))) for n in range(30)]
    varied = vary(pods, [], "pinned-as-listed")
    pinned = [pod for pod in varied if pod.request.models]
    assert {pod.request.models for pod in pinned} == {frozenset("AB")}
    assert 75 < len(pinned) < 125
    with pytest.raises(InputError, match="name models"):
        vary(pods[:270], [], "pinned-as-listed")


def test_churn_offers_the_load_it_is_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", f"{files}/nodes.csv", "--pods", f"{files}/pods.csv", "--seeds", "1"]
    arrived = []
    for load in ("110", "55"):
        more = ["--protocol", "churn", "--load", load, "--json"]
        assert placement.main([*arguments, *more]) == 0
        arrived.append(json.loads(capsys.readouterr().out)["runs"][0]["arrived"])
    assert 0.35 < arrived[1] / arrived[0] < 0.65
    for wrong in (["--load", "50"], ["--protocol", "churn", "--load", "0"]):
        with pytest.raises(SystemExit):
            placement.main([*arguments, *wrong])


def test_memory_shares_can_differ_from_compute_shares() -> None:
    pods = [Pod(f"p{n}", Request(0, 0, 1, 100 + 50 * n, 100 + 50 * n)) for n in range(10)]
    opposite = vary(pods, [], "memory-opposite")
    assert all(
        pod.request.compute_milli + (pod.request.gpu_memory_units or 0) == 1000 for pod in opposite
    )
    apart = vary(pods, [], "memory-apart")
    assert sorted(pod.request.gpu_memory_units or 0 for pod in apart) == list(range(100, 600, 50))
    assert [pod.request.compute_milli for pod in apart] == list(range(100, 600, 50))


@pytest.mark.parametrize("given", ["--arrivals=arrivals.csv", "--events=events.csv.gz"])
def test_a_given_list_is_replayed_the_same_way_each_time(files: Path, given: str) -> None:
    option, _, name = given.partition("=")
    written = []
    for out in ("first.csv", "second.csv.gz"):
        arguments = ["--nodes", f"{files}/nodes.csv", option, f"{files}/{name}"]
        assert placement.main([*arguments, "--out", f"{files}/{out}", "--judge"]) == 0
        data = (files / out).read_bytes()
        written.append(gzip.decompress(data) if out.endswith(".gz") else data)
    assert written[0] == written[1]
    lines = written[0].decode().splitlines()
    assert lines[0] == "seq,node,devices"
    source = ARRIVALS if "arrivals" in name else EVENTS
    asked = [line for line in source.splitlines()[1:] if "leave" not in line]
    assert [line.split(",")[0] for line in lines[1:]] == [str(n) for n in range(len(asked))]
    whole = [line.split(",") for line in lines[1:] if int(line.split(",")[0]) % 5 == 3]
    assert all(devices.count("-") == 1 for _, node, devices in whole if node)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pods.csv", "name,cpu_milli\n", "pods.csv:1: there is no column 'memory_mib'"),
        ("pods.csv", PODS + "x,1,1,1\n", "pods.csv:42: 4 fields, the header has 6"),
        ("pods.csv", PODS + "x,one,1,1,1,\n", "pods.csv:42: cpu_milli is 'one'"),
        ("pods.csv", PODS + "x,1,1,1,1001,\n", "pods.csv:42: gpu_milli is 1001, more than 1000"),
        ("pods.csv", PODS + "x,1,1,1,0,\n", "pods.csv:42: gpu_milli is 0"),
        ("pods.csv", "", "pods.csv:1: there is no column 'name'"),
        ("nodes.csv", NODES + "node-0,1,1,1,A\n", "nodes.csv:10: node 'node-0'"),
        ("nodes.csv", NODES.splitlines()[0] + "\n", "nodes.csv: no node has a GPU"),
    ],
)
def test_a_bad_line_is_named_in_one_line(
    files: Path, name: str, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / name).write_text(text)
    arguments = ["--nodes", f"{files}/nodes.csv", "--pods", f"{files}/pods.csv"]
    assert placement.main(arguments) == placement.WRONG_INPUT
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("99,7,arrive,p,1,1,0,0,", "seq '7' arrived before"),
        ("99,999,leave,p,1,1,0,0,", "seq '999' is not there to leave"),
        ("99,999,pause,p,1,1,0,0,", "neither 'arrive' nor 'leave'"),
        ("1,999,arrive,p,1,1,0,0,", "before the line above"),
        ("nan,999,arrive,p,1,1,0,0,", "not a time"),
    ],
)
def test_bad_events_are_named_in_one_line(
    files: Path, line: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "events.csv").write_text(f"{EVENTS}{line}\n")
    arguments = ["--nodes", f"{files}/nodes.csv", "--events", f"{files}/events.csv"]
    assert placement.main(arguments) == placement.WRONG_INPUT
    assert expected in capsys.readouterr().err


def test_damaged_and_missing_files_are_named(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(PODS.encode())
    for data in (whole[: len(whole) // 2], whole[:30] + bytes(20) + whole[50:], b"\xff\xfe\x00"):
        (files / "pods.csv").write_bytes(data)
        arguments = ["--nodes", f"{files}/nodes.csv", "--pods", f"{files}/pods.csv"]
        assert placement.main(arguments) == placement.WRONG_INPUT
        assert capsys.readouterr().err.startswith(f"bench.placement: {files}/pods.csv: ")
    assert placement.main(["--nodes", f"{files}/none.csv", "--pods", f"{files}/pods.csv"]) == 2
    assert "none.csv: cannot be read" in capsys.readouterr().err


def test_lists_saved_by_spreadsheets_and_data_frames_are_read_alike(files: Path) -> None:
    lines = ARRIVALS.splitlines()
    floats = [
        ",".join(f"{f}.0" if f.isdigit() and i > 1 else f for i, f in enumerate(x.split(",")))
        for x in lines
    ]
    saved = {
        "plain": ARRIVALS.encode(),
        "spreadsheet": b"\xef\xbb\xbf" + "\r\n".join([*lines, ""]).encode(),
        "frame": "\n".join([*floats, ""]).encode(),
    }
    written = set()
    for name, data in saved.items():
        (files / f"{name}.csv").write_bytes(data)
        arguments = ["--nodes", f"{files}/nodes.csv", "--arrivals", f"{files}/{name}.csv"]
        assert placement.main([*arguments, "--out", f"{files}/{name}.out"]) == 0
        written.add((files / f"{name}.out").read_bytes())
    assert len(written) == 1


def test_events_given_as_arrivals_are_told_apart(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", f"{files}/nodes.csv", "--arrivals", f"{files}/events.csv.gz"]
    assert placement.main(arguments) == placement.WRONG_INPUT
    assert "events.csv.gz:2: a list with arrivals and leaves" in capsys.readouterr().err


def test_memory_may_differ_from_compute(files: Path) -> None:
    rows = "".join(f"{n},p{n},0,0,1,100,,900\n" for n in range(30))
    header = "seq,pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,gpu_memory_milli\n"
    (files / "arrivals.csv").write_text(header + rows)
    arguments = ["--nodes", f"{files}/nodes.csv", "--arrivals", f"{files}/arrivals.csv"]
    assert placement.main([*arguments, "--out", f"{files}/out.csv", "--judge"]) == 0
    placed = [line for line in (files / "out.csv").read_text().splitlines()[1:] if "node" in line]
    assert len(placed) == 24


def test_the_judge_finds_what_is_wrong() -> None:
    node = Node("one", 4_000, 4_000, (Gpu("a", "A", 1000), Gpu("b", "A", 1000)))
    pod = Pod("p", Request(1_000, 1_000, 1, 600, 600))
    events = [Event(0.0, str(n), True, pod) for n in range(2)]
    good = Decision(0, "one", (0,), 0.0)
    assert faults([node], events, {"0": good, "1": replace(good, devices=(1,))}) == []
    (twice,) = faults([node], events, {"0": good, "1": good})
    assert twice == "1 does not fit on (0,) of one"
    (refused,) = faults([node], events, {"0": good, "1": None})
    assert refused == "1 was left out, though it fits on one"
    (nowhere,) = faults([node], events[:1], {"0": replace(good, devices=(2,))})
    assert "does not fit on (2,)" in nowhere
