"""Another version of the shim comes while pods run: theirs stays, new pods get the new one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.archives import file_layer, read_file, with_layer
from tests.e2e.daemons import await_true
from tests.e2e.images import PRODUCT_IMAGE
from tests.e2e.installation import NAMESPACE, Installation
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024
OUT_OF_MEMORY = 2
SHIM = "site-packages/shim/libaliquot.so"
NEXT_IMAGE = "docker.io/aliquot/aliquot:next"
# Fills its slice with a process after the other, for as long as it lives.
AGAIN_AND_AGAIN = "while :; do client see fill; sleep 1; done"


@pytest.fixture
def next_image(installed: Installation, tmp_path: Path) -> Iterator[str]:
    """The product with a library that differs by a byte which no program looks at."""
    product = installed.cluster.images()[PRODUCT_IMAGE]
    path, content = read_file(product, SHIM)
    (tmp_path / "shim").write_bytes(content + b"\0")
    layer = file_layer(tmp_path / "layer.tar", {path: tmp_path / "shim"})
    archive = tmp_path / "next.tar"
    with_layer(product, archive, NEXT_IMAGE, layer)
    for node in installed.cluster.nodes:
        node.load(archive)
    yield NEXT_IMAGE
    installed.cluster.kubectl(
        "rollout", "undo", "daemonset/aliquot-agent", f"--namespace={NAMESPACE}"
    )
    installed.await_ready()


def shims(installed: Installation, name: str) -> set[str]:
    """Versions that the pod's processes have loaded."""
    machine = installed.cluster.node_of(name).machine
    mounts = [
        machine.run("cat", f"/proc/{process['host_pid']}/mountinfo", check=False)
        for process in installed.processes(name)
    ]
    return set(re.findall(r"libaliquot-\w+\.so", "\n".join(mounts)))


def test_running_pods_keep_their_shim_and_new_ones_get_the_new_one(
    installed: Installation, workloads: Workloads, next_image: str
) -> None:
    cluster = installed.cluster
    workloads.start(pod("steady", "see", "fill", "burn", memory="1Gi", compute=20))
    lively = pod("lively", memory="2Gi", compute=20)
    lively["spec"]["containers"][0]["command"] = ["sh", "-c", AGAIN_AND_AGAIN]
    workloads.start(lively)
    workloads.await_line("steady", "burning")
    workloads.await_line("lively", "fill")
    [old] = shims(installed, "steady")

    images = [f"{container}={next_image}" for container in ("agent", "simulated-gpus")]
    cluster.kubectl("set", "image", "daemonset/aliquot-agent", *images, f"--namespace={NAMESPACE}")
    installed.await_ready()

    workloads.start(pod("new", "see", "fill", "wait", memory="1Gi", compute=20))
    assert workloads.await_line("new", "fill")["refused_with"] == OUT_OF_MEMORY
    [new] = shims(installed, "new")
    assert new != old
    assert shims(installed, "steady") == {old}
    assert workloads.phase("steady") == "Running"

    # Also processes that start now, in a container of before, have the library and the limits
    # that it began with.
    since = len(workloads.lines("lively"))
    await_true("more processes have run", lambda: len(workloads.lines("lively")) > since + 4)
    for line in workloads.lines("lively")[since:]:
        if "see" in line:
            assert line["see"][0]["total_mib"] == 2 * GIB_IN_MIB
        else:
            assert line["fill"]["refused_with"] == OUT_OF_MEMORY
