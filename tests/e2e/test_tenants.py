"""GPUs that break, tenants that cheat, pods that are resized, evicted for others, or watched."""

import json
import subprocess
import sys

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024
SUCCESS, OUT_OF_MEMORY = 0, 2


def test_a_broken_gpu_is_taken_out_and_comes_back(
    installed: Installation, workloads: Workloads
) -> None:
    node = installed.cluster.nodes[0]
    installed.fault(node, 1, "xid=79")
    try:
        await_true(
            "its memory is withdrawn",
            lambda: installed.allocatable(node) == (GPUS_A_NODE - 1) * UNITS_A_GPU,
        )
        await_true(
            "an event says so",
            lambda: "Xid 79" in installed.cluster.kubectl("describe", "node", node.name),
        )
        await_true("a metric says so", lambda: "xid" in installed.metrics("agent").lower())
    finally:
        installed.fault(node, 1, "clear")
    await_true("it is back", lambda: installed.allocatable(node) == GPUS_A_NODE * UNITS_A_GPU, 300)


DAMAGE = """
client see fill wait & sleep 2
dd if=/dev/urandom of=/run/aliquot/memory/usage bs=1k count=8 seek=1 conv=notrunc
client fill
wait
"""

OWN_LOADER = """
sed 's|/etc/ld.so.preload|/etc/ld.so.nothing|' /lib64/ld-linux-x86-64.so.2 > /tmp/loader
chmod +x /tmp/loader
exec /tmp/loader /usr/bin/python3 /usr/local/bin/client take=4096 wait
"""

HOSTILE = {
    "no preload": ["env", "-u", "LD_PRELOAD", "client"],
    "our variables": [
        *("env", "ALIQUOT_LIMITS=/tmp", "ALIQUOT_MEMORY=80Gi", "ALIQUOT_RUN=x"),
        "client",
    ],
    "damage to its usage": ["sh", "-c", DAMAGE],
    "forks": ["sh", "-c", "client see fill wait & client see fill wait & wait"],
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_pod_gets_no_more_than_its_cap(
    installed: Installation, workloads: Workloads, how: str
) -> None:
    command = HOSTILE[how]
    actions = [] if command[0] == "sh" else ["see", "fill", "wait"]
    hostile = pod("hostile", *actions, memory="2Gi", compute=20)
    hostile["spec"]["containers"][0]["command"] = command
    workloads.start(hostile)
    filled = workloads.await_line("hostile", "fill")
    assert filled["refused_with"] == OUT_OF_MEMORY
    node = next(n for n in installed.cluster.nodes if n.name == workloads.node_of("hostile"))
    used = sum(gpu["used_bytes"] for gpu in installed.simulated(node)["devices"])
    assert used <= 2 << 30


def test_a_pod_whose_account_is_garbage_gets_no_gpu(
    installed: Installation, workloads: Workloads
) -> None:
    garbage = "head -c 60000 /dev/urandom > /run/aliquot/memory/usage; exec client see fill"
    hostile = pod("hostile", memory="2Gi", compute=20)
    hostile["spec"]["containers"][0]["command"] = ["sh", "-c", garbage]
    workloads.start(hostile)
    workloads.await_phase("hostile", "Failed")
    assert "no GPU for this process" in installed.cluster.kubectl("logs", "hostile")


def test_a_pod_that_runs_past_the_shim_is_reported(
    installed: Installation, workloads: Workloads
) -> None:
    """Its own loader does not read /etc/ld.so.preload: no library can prevent that."""
    hostile = pod("hostile", memory="2Gi", compute=20)
    hostile["spec"]["containers"][0]["command"] = ["sh", "-c", OWN_LOADER]
    workloads.start(hostile)
    assert workloads.await_line("hostile", "take") == SUCCESS
    workloads.await_description("hostile", "GpuLimitBreached")
    await_true("a metric counts it", lambda: "breach" in installed.metrics("agent"))


def test_mounts_over_our_paths_are_refused(workloads: Workloads) -> None:
    hostile = pod("hostile", "wait", memory="2Gi", compute=20)
    hostile["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    hostile["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "mine", "mountPath": "/etc/aliquot"}
    ]
    answer = workloads.start(hostile)
    assert "/etc/aliquot" in answer
    assert workloads.phase("hostile") == ""


def test_a_running_pod_grows_and_shrinks(installed: Installation, workloads: Workloads) -> None:
    watching = "while :; do client see; sleep 1; done"
    resized = pod("resized", memory="2Gi", compute=20)
    resized["spec"]["containers"][0] |= {"command": ["sh", "-c", watching]}
    workloads.start(resized)
    workloads.await_line("resized", "see")
    for gib, percent in ((6, 50), (1, 10)):
        subprocess.run(
            [
                *(sys.executable, "-m", "aliquot.cli", "resize", "pod/resized"),
                *(f"--memory={gib}Gi", f"--compute={percent}", "--timeout=120"),
                f"--kubeconfig={installed.cluster.control_plane.admin}",
            ],
            check=True,
        )
        await_true(
            f"it sees {gib} GiB",
            lambda gib=gib: (
                workloads.await_line("resized", "see")[0]["total_mib"]  # type: ignore[misc]
                == gib * GIB_IN_MIB
            ),
        )


def test_a_pod_with_priority_takes_the_place_of_another(
    installed: Installation, workloads: Workloads
) -> None:
    cluster = installed.cluster
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    gpus = GPUS_A_NODE * len(cluster.nodes)
    low = [pod(f"low-{n}", "wait", memory="60Gi", compute=50) for n in range(gpus)]
    workloads.start(*low)
    for each in low:
        workloads.await_phase(each["metadata"]["name"])
    workloads.start(
        pod("high", "see", "wait", memory="60Gi", compute=50, priorityClassName="urgent")
    )
    workloads.await_phase("high")
    running = [each for each in low if workloads.phase(each["metadata"]["name"]) == "Running"]
    assert len(running) == gpus - 1, "one had to go, and one is enough"
    cluster.kubectl("delete", "priorityclass", "urgent")


def test_a_stolen_agent_token_writes_no_other_node(installed: Installation) -> None:
    """With the agent's own rights and its own token, from inside of its container."""
    cluster = installed.cluster
    own, other = cluster.nodes[:2]
    write = (
        "import ssl,sys,urllib.request as u\n"
        "t=open('/var/run/secrets/kubernetes.io/serviceaccount/token').read()\n"
        "c=ssl.create_default_context("
        "cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')\n"
        "r=u.Request('https://kubernetes.default.svc/api/v1/nodes/'+sys.argv[1],method='PATCH',"
        "data=sys.argv[2].encode(),headers={'Authorization':'Bearer '+t,"
        "'Content-Type':'application/merge-patch+json'})\n"
        "try: print(u.urlopen(r,context=c).status)\n"
        "except u.HTTPError as e: print(e.code, e.read().decode())\n"
    )

    def patch(node: str, body: str) -> str:
        agent = installed.agent_on(own.name)
        words = ("exec", "--namespace=aliquot-system", agent, "--", "python3", "-c", write)
        return cluster.kubectl(*words, node, body, check=False)

    note = json.dumps({"metadata": {"annotations": {"aliquot.dev/note": "x"}}})
    assert "200" in patch(own.name, note)
    assert "own node and its pods only" in patch(other.name, note)
    assert "annotations only" in patch(own.name, json.dumps({"metadata": {"labels": {"a": "b"}}}))
    foreign = json.dumps({"metadata": {"annotations": {"example.com/note": "x"}}})
    assert "of aliquot.dev only" in patch(own.name, foreign)
