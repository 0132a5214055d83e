"""A cluster of one node without GPU: the product's programs as processes, stand-ins around them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aliquot.errors import OperationError
from aliquot.kubernetes.errors import ApiServerError
from aliquot.kubernetes.paths import node_path, pod_path, pods_path
from aliquot.protocol.names import INVENTORY
from simcluster.apiserver import ApiServer, write_kubeconfig
from simcluster.apiserver import node as node_manifest
from simcluster.demo.admission import webhook_admission
from simcluster.demo.conversation import Conversation
from simcluster.demo.patience import Patience
from simcluster.demo.processes import ServedProcess, put_first
from simcluster.kubelet import Kubelet
from simcluster.kubelet.containers import (
    NoContainers,
    check_containers,
    start_process,
    start_without_mounts,
)
from simcluster.kubelet.runoptions import RunOptions
from simcluster.kubelet.workers import PodWorkers
from simcluster.scheduler import Extender, Scheduler
from simgpu.node import LIBRARIES, Node

__all__ = ["GPUS", "Cluster"]

Object = dict[str, Any]

GPUS = "2xA100-80G"
NODE_NAME = "node-1"
NAMESPACE = "default"
LONGEST_FOLDER = 60
"""Characters, so that the paths of sockets stay within what Linux takes."""


class Cluster:
    """Everything ends, and every file goes, with `stop`: whatever had started until then."""

    def __init__(self, say: Callable[[str], None], patience: Patience) -> None:
        """`say` is told each step before it is taken."""
        self._say = say
        self._patience = patience
        self._stack = ExitStack()
        self.without_mounts = ""
        """Why pods have no mounts of their own; empty when they have."""
        self.gpus: Node
        self.addresses: dict[str, str] = {}
        """Where to look, by what is to be seen there."""
        self._server: ApiServer
        self._agent: ServedProcess
        self._extender: ServedProcess
        self._workers: PodWorkers
        self._folder: Path

    def start(self) -> None:
        self._folder = self._make_folder(None)
        self._say(f"making a node with simulated GPUs: {GPUS}")
        # Written to all the time: a disk would be in the way.
        in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
        state = self._make_folder(in_memory) / "node"
        self.gpus = self._stack.enter_context(Node.create(state, GPUS))
        self._say("starting stand-ins for the API server and the kubelet")
        self._server = self._stack.enter_context(ApiServer())
        self._server.add(node_manifest(NODE_NAME))
        kubelet = self._stack.enter_context(Kubelet(self._folder / "kubelet"))
        self._start_programs(kubelet)
        self._check_mounts()
        self._workers = PodWorkers(kubelet, self._server.client(), NODE_NAME, self._launch)
        self._stack.callback(self._workers.stop)
        self._workers.start()
        self._patience.until(self._node_is_known, "the node to tell its GPUs")
        self._say("starting a stand-in for kube-scheduler, which asks the extender")
        extender = Extender(f"{self.addresses['the extender']}/scheduler")
        scheduler = Scheduler(self._server.client(), extender)
        self._stack.callback(scheduler.stop)
        scheduler.start()

    def stop(self) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raises if one of the product's programs has ended."""
        self._agent.check()
        self._extender.check()

    # Pods.

    def create(self, manifest: Object) -> None:
        try:
            self._server.client().create(pods_path(NAMESPACE), manifest)
        except ApiServerError as error:
            raise OperationError(f"the API server refused a pod of the demo: {error}") from None

    def pod(self, name: str) -> Object:
        found = self._server.get(pod_path(NAMESPACE, name))
        if found is None:
            raise OperationError(f"pod {name} is gone")
        return found

    def phase(self, name: str) -> str:
        return str(self.pod(name)["status"]["phase"])

    def wait_for(self, claim: Callable[[], object], what: str) -> None:
        """Ends early when one of the programs does."""

        def holds() -> object:
            self.check()
            return claim()

        self._patience.until(holds, what)

    def attach(self, name: str) -> Conversation:
        """Once the pod runs."""
        self.wait_for(lambda: self.phase(name) != "Pending", f"the start of pod {name}")
        process = self._workers.process_of(self.pod(name)["metadata"]["uid"])
        if process is None:
            status = self.pod(name)["status"]
            raise OperationError(f"pod {name} did not start: {status.get('message', status)}")
        return Conversation(name, process, self._patience)

    # Parts.

    def _make_folder(self, parent: str | None) -> Path:
        prefix = f"aliquot-demo-{os.getpid()}-"
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
        self._stack.callback(shutil.rmtree, made, ignore_errors=True)
        if len(str(made)) > LONGEST_FOLDER:
            raise OperationError(
                f"{made} is too long a path for sockets; try again with TMPDIR=/tmp"
            )
        return made

    def _start_programs(self, kubelet: Kubelet) -> None:
        kubeconfig = write_kubeconfig(self._server.url, self._folder / "kubeconfig")
        environment = {**self.gpus.environment(), "KUBECONFIG": str(kubeconfig)}
        local = "127.0.0.1:0"
        self._say("starting the node agent: aliquot plugin")
        agent_flags = {
            "kubelet-dir": kubelet.folder,
            "state-dir": self._folder / "state",
            "node-name": NODE_NAME,
            "gpu-access": "simulated",
            "sim-libraries": LIBRARIES,
            # A tmpfs for each container would need root, and would outlive the demo.
            "usage-store": "folder",
            "listen": local,
            "advertise-url": "127.0.0.1",
        }
        self._agent = self._serve("plugin", agent_flags, environment)
        self._say("starting the scheduler extender with its webhook: aliquot extender")
        extender_flags = {
            "kubeconfig": kubeconfig,
            "listen": local,
            "listen-tls": "off",
            "dashboard": local,
            "leader-election": "off",
        }
        self._extender = self._serve("extender", extender_flags, environment)
        extender = self._extender.wait_url(self._patience, "listening")
        self._extender.wait_ready(self._patience, extender)
        agent = self._agent.wait_url(self._patience, "answers HTTP")
        self._agent.wait_ready(self._patience, agent)
        self._server.admission = webhook_admission(extender)
        self.addresses = {
            "the dashboard": self._extender.wait_url(self._patience, "dashboard"),
            "metrics of the node agent": f"{agent}/metrics",
            "metrics of the extender": f"{extender}/metrics",
            "the extender": extender,
            "the API server's stand-in": self._server.url,
            "a kubeconfig for it": str(kubeconfig),
        }

    def _serve(
        self, command: str, flags: dict[str, object], environment: dict[str, str]
    ) -> ServedProcess:
        log = self._folder / f"{command}.log"
        started = ServedProcess(command, flags, log, environment)
        self._stack.callback(started.stop)
        return started

    def _node_is_known(self) -> bool:
        """The kubelet has told amounts, the agent has told which GPUs."""
        node = self._server.get(node_path(NODE_NAME)) or {}
        amounts = node["status"]["allocatable"]
        return INVENTORY in node["metadata"]["annotations"] and any("/" in each for each in amounts)

    def _check_mounts(self) -> None:
        try:
            check_containers()
        except NoContainers as error:
            self.without_mounts = str(error)
            self._say(
                "pods get no mounts of their own here, and find the same files by environment "
                f"variables instead ({error})"
            )

    def _launch(self, pod: Object, options: RunOptions) -> "subprocess.Popen[bytes]":
        (container,) = pod["spec"]["containers"]
        name = f"pod-{pod['metadata']['uid']}"
        environment = {"PATH": os.defpath, "HOME": "/nonexistent"}
        with open(self._folder / f"{name}.log", "wb") as log:
            popen: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": log,
                "start_new_session": True,
            }
            command = container["command"]
            if self.without_mounts:
                folder = self._folder / name
                process = start_without_mounts(options, command, environment, folder, **popen)
            else:
                process = start_process(options, command, environment, self._folder, **popen)
        put_first(process.pid)
        return process
