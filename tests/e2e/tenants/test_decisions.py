"""A real kube-scheduler over nodes that exist in the API server only: it does what we decided."""

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.client import ApiClient, connect
from aliquot.kubernetes.errors import ApiError, ApiServerError
from aliquot.kubernetes.paths import NODES, PODS, pod_path, pods_path
from aliquot.protocol import assignment, names
from scheduler_ext.extender import Extender
from scheduler_ext.footprint import Amount, Share
from scheduler_ext.ledger import Entry
from scheduler_ext.objects import Pod
from scheduler_ext.placement import Cluster, Gpu, Node, Placer, Request, policy_named
from scheduler_ext.settings import load
from tests.e2e.binaries import binaries
from tests.e2e.certificates import Authority
from tests.e2e.daemons import Daemon, await_true
from tests.extender_cluster import gpu_node, gpu_pod

NODE_NAMES = [f"paper-{number:02}" for number in range(12)]
GPUS = 4
SIZES = [(16, 10), (8, 20), (24, 5), (32, 15), (80, 50)]


class PaperCluster:
    """A control plane of its own beside the session's, without kubelets and controllers."""

    def __init__(self, folder: Path) -> None:
        programs = binaries()
        etcd, peer, port = (_free_port() for _ in range(3))
        authority = Authority(folder / "pki")
        server = authority.issue("apiserver", "kube-apiserver", hosts=("127.0.0.1",))
        accounts = authority.service_account_key()
        self.admin = authority.kubeconfig(
            "admin", f"https://127.0.0.1:{port}", "kubernetes-admin", ("system:masters",)
        )
        self.client: ApiClient = connect(self.admin)
        self._folder = folder
        self._scheduler = programs["kube-scheduler"]
        self._daemons = [
            Daemon(
                "etcd",
                [
                    programs["etcd"],
                    f"--data-dir={folder / 'etcd'}",
                    f"--listen-client-urls=http://127.0.0.1:{etcd}",
                    f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-cluster=default=http://127.0.0.1:{peer}",
                    "--unsafe-no-fsync",
                ],
                folder,
            ),
            Daemon(
                "kube-apiserver",
                [
                    programs["kube-apiserver"],
                    f"--etcd-servers=http://127.0.0.1:{etcd}",
                    "--bind-address=127.0.0.1",
                    "--advertise-address=127.0.0.1",
                    "--endpoint-reconciler-type=none",
                    f"--secure-port={port}",
                    "--service-cluster-ip-range=10.98.0.0/16",
                    f"--tls-cert-file={server.certificate}",
                    f"--tls-private-key-file={server.key}",
                    f"--client-ca-file={authority.root}",
                    f"--service-account-key-file={accounts}",
                    f"--service-account-signing-key-file={accounts}",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--authorization-mode=RBAC",
                    # Nobody makes service accounts here, and nobody would call the nodes ready.
                    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                ],
                folder,
            ),
        ]

    def start(self) -> None:
        for daemon in self._daemons:
            daemon.start()
        self._daemons[-1].await_answer(self._answers)
        for name in NODE_NAMES:
            node = gpu_node(name, gpus=GPUS, linked=True)
            status = node.pop("status")
            self.client.create(NODES, node)
            self.client.patch(f"{NODES}/{name}/status", {"status": status})

    def start_scheduler(self, extender_port: int) -> None:
        config = self._folder / "scheduler.json"
        config.write_text(json.dumps(_scheduler_config(self.admin, extender_port)))
        self.scheduler = Daemon(
            "kube-scheduler",
            [self._scheduler, f"--config={config}", "--secure-port=0"],
            self._folder,
        )
        self.scheduler.start()

    def empty(self) -> None:
        """For the next test, without the scheduler of the last one."""
        self.scheduler.stop()
        self.client.delete(pods_path("default"), grace_s=0)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()
        self.client.close()

    def add_pod(self, name: str, memory: int, compute: int) -> None:
        pod = gpu_pod(name, memory, compute)
        pod["spec"].pop("priority")
        del pod["metadata"]["uid"], pod["status"]
        pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
        self.client.create(pods_path("default"), pod)

    def pod(self, name: str) -> Pod:
        return self.client.get(pod_path("default", name), Pod)

    def await_bound(self, name: str) -> Pod:
        await_true(f"{name} is bound", lambda: bool(self.pod(name).spec.node_name), pause_s=0.01)
        return self.pod(name)

    def message(self, name: str) -> str:
        """Of the pod's event."""
        events = self.client.list("/api/v1/namespaces/default/events", dict[str, Any]).items
        told = [each["message"] for each in events if each["involvedObject"]["name"] == name]
        return told[-1] if told else ""

    def _answers(self) -> bool:
        try:
            self.client.list(PODS, Pod)
        except ApiServerError:
            return False
        return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _scheduler_config(admin: Path, extender_port: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(admin)},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": names.SCHEDULER_NAME}],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{extender_port}/scheduler",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 1000,
                "nodeCacheCapable": True,
                "ignorable": False,
                "httpTimeout": "30s",
                "managedResources": [
                    {"name": resource, "ignoredByScheduler": False}
                    for resource in (names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE)
                ],
            }
        ],
    }


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaperCluster]:
    started = PaperCluster(tmp_path_factory.mktemp("paper"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def extender(paper: PaperCluster) -> Iterator[Extender]:
    options = {"listen": "127.0.0.1:0", "listen_tls": "off", "leader_election": "off"}
    client = connect(paper.admin)
    started = Extender(load(options, {}), client)
    started.start()
    try:
        await_true("the extender is ready", lambda: not started.not_ready(leading=True))
        paper.start_scheduler(started.port)
        yield started
    finally:
        started.stop()
        client.close()
        paper.empty()


def test_two_hundred_decisions_are_those_of_placement(paper, extender):
    gpus = {
        name: tuple(Gpu(f"GPU-{name}-{index}", "A100", 160) for index in range(GPUS))
        for name in NODE_NAMES
    }
    links = extender.state.nodes[NODE_NAMES[0]].inventory.links
    cluster = Cluster([Node(name, 64_000, 262_144, gpus[name], links) for name in NODE_NAMES])
    placer = Placer(cluster, policy_named("fragmentation"))
    drawn = random.Random(1)
    for number in range(200):
        memory, compute = drawn.choice(SIZES)
        request = Request(gpus=1, compute_milli=10 * compute, gpu_memory_units=memory)
        placer.observe(request)
        expected = placer.decide(request)
        if expected is None:
            continue
        paper.add_pod(f"p{number}", memory, compute)
        bound = paper.await_bound(f"p{number}")
        [part] = assignment.decode(bound.metadata.ours.plan).containers["main"]
        assert bound.spec.node_name == expected.node, number
        assert part.uuid == cluster.uuids[expected.row][expected.devices[0]], number
        cluster.take(expected.row, expected.devices, request)


def test_a_waiting_pod_reads_why_and_comes_when_there_is_room(paper, extender):
    """What is freed here is known only to us: kube-scheduler hears of it by our annotation."""
    state = extender.state
    everywhere = tuple(
        Share(uuid, Amount(90, 60)) for uuids in state.cluster.uuids for uuid in uuids
    )
    with state.lock:
        state.ledger.hold("somebody", Entry(NODE_NAMES[0], everywhere))
        state.refresh()
    paper.add_pod("waits", 60, 50)
    await_true("the pod has an event", lambda: bool(paper.message("waits")))
    assert "12 GPU 0 has the most free compute: 40 of 50 percent asked" in paper.message("waits")
    assert not paper.pod("waits").spec.node_name
    with state.lock:
        state.ledger.let_go("somebody")
        state.refresh()
    paper.await_bound("waits")
    found = paper.client.get(pod_path("default", "waits"), dict[str, Any])
    assert names.RETRY in found["metadata"]["annotations"]


def test_a_binding_for_a_pod_that_has_changed_is_refused(paper):
    """On this rests that a request which is stuck somewhere does no harm when it arrives late."""
    paper.add_pod("p", 16, 10)
    before = paper.pod("p").metadata
    paper.client.patch(pod_path("default", "p"), {"metadata": {"annotations": {"a": "b"}}})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": before.uid,
            "resourceVersion": before.resource_version,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAMES[0]},
    }
    with pytest.raises(ApiError) as caught:
        paper.client.create(f"{pod_path('default', 'p')}/binding", binding)
    assert caught.value.conflict
