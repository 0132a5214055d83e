"""The pods of deploy/examples and of the README run, with our program in place of their images."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from aliquot import sizes
from aliquot.protocol import names
from tests.e2e.daemons import await_true
from tests.e2e.images import CLIENT_IMAGE
from tests.e2e.installation import Installation
from tests.e2e.places import CHECKOUT
from tests.e2e.workloads import Workloads

FOLDER = CHECKOUT / "deploy/examples"
MIB = 1 << 20
Object = dict[str, Any]
Slice = tuple[int, int]
"""MiB and percent of one GPU."""


def from_readme() -> str:
    readme = (CHECKOUT / "README.md").read_text()
    [shown] = re.findall(r"^```yaml\n(apiVersion: v1\nkind: Pod\n.+?)^```$", readme, re.M | re.S)
    return str(shown)


def pod_of(example: Object) -> Object:
    """The pod that it is, or of which it makes several."""
    return example if example["kind"] == "Pod" else dict(example["spec"]["template"])


def runnable(text: str) -> Object:
    """Nothing is changed but the program."""
    example: Object = yaml.safe_load(text)
    spec = pod_of(example)["spec"]
    spec["terminationGracePeriodSeconds"] = 1
    [container] = spec["containers"]
    container.pop("command", None)
    container |= {"image": CLIENT_IMAGE, "imagePullPolicy": "Never", "args": ["see", "wait"]}
    return example


def expected(example: Object) -> Counter[tuple[Slice, ...]]:
    """What each of its pods asks for, GPU by GPU, as the manifest says it."""
    spec, asking = example["spec"], pod_of(example)
    pods = spec.get("replicas") or spec.get("parallelism") or 1
    limits = asking["spec"]["containers"][0]["resources"]["limits"]
    gpus = int(asking["metadata"].get("annotations", {}).get(names.GPUS, 1))
    memory = sizes.parse_size(limits[names.MEMORY_RESOURCE], 0) // MIB // gpus
    return Counter({((memory, limits[names.COMPUTE_RESOURCE] // gpus),) * gpus: pods})


def test_they_are_taken_as_they_are(installed: Installation) -> None:
    """By the API server and, where they are pods, by the webhooks."""
    try_out = ("apply", "--dry-run=server", "--validate=strict", "-f")
    answer = installed.cluster.kubectl(*try_out, str(FOLDER))
    assert answer.count("created (server dry run)") == len(list(FOLDER.glob("*.yaml"))) > 0
    assert "pod/inference created" in installed.cluster.kubectl(*try_out, "-", text=from_readme())


@pytest.fixture
def applied(installed: Installation) -> Iterator[list[Object]]:
    """The largest first: it needs two GPUs of one node that both have room."""
    texts = [path.read_text() for path in FOLDER.glob("*.yaml")]
    examples = [runnable(text) for text in (*texts, from_readme())]
    examples.sort(key=lambda each: -max(map(len, expected(each))))
    cluster = installed.cluster
    try:
        for number, each in enumerate(examples):
            cluster.apply(each)
            if not number:
                await_true("it is placed", lambda: is_placed(cluster.api.every("pod")))
        yield examples
    finally:
        made = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in examples]
        cluster.kubectl("delete", *made, "--ignore-not-found", "--wait=false")


def is_placed(pods: list[Object]) -> bool:
    return any(each["spec"].get("nodeName") for each in pods)


def test_the_examples_and_the_pod_of_the_readme_get_what_they_ask_for(
    installed: Installation, applied: list[Object]
) -> None:
    assert {each["kind"] for each in applied} == {"Pod", "Deployment", "Job"}
    wanted: Counter[tuple[Slice, ...]] = sum(map(expected, applied), Counter())
    cluster, workloads = installed.cluster, Workloads(installed.cluster)
    await_true("all are there", lambda: len(cluster.api.every("pod")) == wanted.total())
    found: Counter[tuple[Slice, ...]] = Counter()
    for name in [each["metadata"]["name"] for each in cluster.api.every("pod")]:
        seen = workloads.await_line(name, "see")
        given = [percent for _, _, percent in workloads.slices(name)]
        found[tuple(zip((each["total_mib"] for each in seen), given, strict=True))] += 1
    assert found == wanted

    # The README's last command.
    command = [sys.executable, "-m", "aliquot.cli", "explain", "inference"]
    config = f"--kubeconfig={cluster.control_plane.admin}"
    told = subprocess.run([*command, config], check=True, capture_output=True, text=True).stdout
    assert cluster.node_of("inference").name in told
