"""Pods that attack their limits: docs/security.md has a row for each of these tests."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.e2e.attacks import (
    BEYOND_CAP,
    CAP,
    CAP_BYTES,
    NO_GPU,
    OWN_LOADER,
    PREVENTED,
    REPORTED,
    hostile_pod,
)
from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, Installation
from tests.e2e.workloads import Workloads, pod

SUCCESS, OUT_OF_MEMORY = 0, 2
REPORTED_WITHIN_S = 5.0
AT_ONCE = 3


def name_of(how: str) -> str:
    return re.sub("[^a-z0-9]+", "-", how.lower())


def breaches(installed: Installation, kind: str, name: str) -> float:
    return sum(installed.metric("agent", "aliquot_breaches_total", kind=kind, pod=name))


@pytest.fixture(scope="module")
def attackers(installed: Installation) -> Iterator[Workloads]:
    """All of them at once: each attacks what is its own, and must not gain by the others."""
    installed.await_ready()
    commands = PREVENTED | NO_GPU | {how: command for how, (command, _) in REPORTED.items()}
    started = Workloads(installed.cluster)
    started.start(*(hostile_pod(command, name_of(how)) for how, command in commands.items()))
    yield started
    started.end()


@pytest.mark.parametrize("how", PREVENTED)
def test_it_gets_no_more_than_its_cap(
    installed: Installation, attackers: Workloads, how: str
) -> None:
    name = name_of(how)
    (seen,) = attackers.await_line(name, "see")
    assert seen["total_mib"] << 20 == CAP_BYTES
    assert attackers.await_line(name, "fill")["refused_with"] == OUT_OF_MEMORY
    usages = [usage for each in installed.processes(name) for usage in each["usages"]]
    assert 0 < sum(usage["used_bytes"] for usage in usages) <= CAP_BYTES


@pytest.mark.parametrize("how", NO_GPU)
def test_it_gets_no_gpu(installed: Installation, attackers: Workloads, how: str) -> None:
    attackers.await_phase(name_of(how), "Failed")
    assert "no GPU for this process" in installed.cluster.kubectl("logs", name_of(how))


@pytest.mark.parametrize("how", REPORTED)
def test_it_is_reported(installed: Installation, attackers: Workloads, how: str) -> None:
    name, (_, kind) = name_of(how), REPORTED[how]
    assert attackers.await_line(name, "take") == SUCCESS
    attackers.await_description(name, "GpuLimitBreached")
    await_true(f"{kind} is counted", lambda: breaches(installed, kind, name) == 1)


def test_a_report_comes_within_seconds(installed: Installation, workloads: Workloads) -> None:
    """From the moment when the runtime took the line that says what the program got."""
    names = [f"hostile-{number}" for number in range(AT_ONCE)]
    command = OWN_LOADER + f"{BEYOND_CAP} wait"
    workloads.start(*(hostile_pod(command, name) for name in names))
    unreported, late = set(names), {}

    def all_reported() -> bool:
        for name in sorted(unreported):
            if breaches(installed, "over-cap", name):
                unreported.remove(name)
                reported = datetime.now(UTC)
                passed = reported - workloads.printed_at(name, "take")
                if passed.total_seconds() > REPORTED_WITHIN_S:
                    late[name] = passed
        return not unreported

    await_true("all are counted", all_reported)
    assert not late


def test_a_pod_that_was_given_nothing_is_reported(
    installed: Installation, workloads: Workloads
) -> None:
    """One that may mount the node's own files needs no plugin to reach its GPUs."""
    intruder = pod("hostile", *BEYOND_CAP.split(), "wait")
    volumes = {"driver": "/var/lib/aliquot/simulated", "state": "/run/aliquot-simulated"}
    intruder["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path}} for name, path in volumes.items()
    ]
    intruder["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in volumes],
        "env": [
            {"name": "LD_LIBRARY_PATH", "value": "/driver"},
            {"name": "ALIQUOT_SIM_STATE", "value": "/state/node"},
        ],
    }
    workloads.start(intruder)
    assert workloads.await_line("hostile", "take") == SUCCESS
    workloads.await_description("hostile", "GpuLimitBreached")
    await_true(
        "it is counted", lambda: breaches(installed, "not-allocated", "hostile") == GPUS_A_NODE
    )


def test_mounts_over_our_paths_are_refused(workloads: Workloads) -> None:
    hostile = pod("hostile", "wait", memory=CAP, compute=20)
    hostile["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    hostile["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "mine", "mountPath": "/etc/aliquot"}
    ]
    assert "/etc/aliquot" in workloads.try_to_start(hostile)
    assert workloads.phase("hostile") == ""


def test_asking_the_runtime_for_all_gpus_is_refused(workloads: Workloads) -> None:
    hostile = pod("hostile", "wait", memory=CAP, compute=20)
    hostile["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert "NVIDIA_VISIBLE_DEVICES" in workloads.try_to_start(hostile)
    assert workloads.phase("hostile") == ""


@pytest.mark.parametrize("annotation", ["plan", "actual"])
def test_writing_our_own_records_is_refused(workloads: Workloads, annotation: str) -> None:
    hostile = pod("hostile", "wait", memory=CAP, compute=20, annotations={annotation: "{}"})
    assert f"aliquot.dev/{annotation} is Aliquot's own record" in workloads.try_to_start(hostile)
    assert workloads.phase("hostile") == ""


def test_switching_the_shim_off_is_refused(workloads: Workloads) -> None:
    hostile = pod("hostile", "wait", memory=CAP, compute=20, annotations={"shim": "off"})
    assert "lifts the caps" in workloads.try_to_start(hostile)
    assert workloads.phase("hostile") == ""
