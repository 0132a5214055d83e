"""etcd, API server, controller manager and scheduler, listening inside the sandbox only."""

import signal
import subprocess
from pathlib import Path

from tests.e2e.binaries import binaries
from tests.e2e.certificates import Authority
from tests.e2e.daemons import Daemon

__all__ = ["ADDRESS", "CLUSTER_DOMAIN", "SERVICES", "ControlPlane"]

ADDRESS = "10.77.0.1"
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
CLUSTER_DOMAIN = "cluster.local"
SERVER = f"https://{ADDRESS}:6443"


class ControlPlane:
    """What a managed cluster's provider runs."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.admin = self.authority.kubeconfig(
            "admin", SERVER, "kubernetes-admin", ("system:masters",)
        )
        programs = binaries()
        self._kubectl = programs["kubectl"]
        self.etcd = Daemon("etcd", self._etcd(programs["etcd"]), logs)
        self.api_server = Daemon(
            "kube-apiserver", self._api_server(programs["kube-apiserver"]), logs
        )
        self.controllers = Daemon(
            "kube-controller-manager", self._controllers(programs["kube-controller-manager"]), logs
        )
        self.scheduler = Daemon("kube-scheduler", self._scheduler(programs["kube-scheduler"]), logs)

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return (self.etcd, self.api_server, self.controllers, self.scheduler)

    def start(self) -> None:
        self.etcd.start()
        self.api_server.start()
        self.api_server.await_answer(self.is_ready)
        self.controllers.start()
        self.scheduler.start()

    def stop(self) -> None:
        """At once: nothing of it is kept, and an API server takes half a minute to say good-bye."""
        for daemon in reversed(self.daemons):
            daemon.stop(signal.SIGKILL)

    def is_ready(self) -> bool:
        asked = subprocess.run(
            [self._kubectl, f"--kubeconfig={self.admin}", "get", "--raw=/readyz"],
            capture_output=True,
            check=False,
        )
        return asked.returncode == 0

    def _etcd(self, program: Path) -> list[str | Path]:
        return [
            program,
            f"--data-dir={self.folder / 'etcd'}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            # The cluster's data may be lost with the machine; waiting for the disk is in vain.
            "--unsafe-no-fsync",
        ]

    def _api_server(self, program: Path) -> list[str | Path]:
        authority = self.authority
        server = authority.issue(
            "apiserver",
            "kube-apiserver",
            hosts=(ADDRESS, FIRST_SERVICE, "127.0.0.1", "kubernetes.default.svc", "kubernetes"),
        )
        to_kubelets = authority.issue("to-kubelets", "apiserver", ("system:masters",))
        accounts = authority.service_account_key()
        return [
            program,
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            "--secure-port=6443",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={authority.root}",
            # Programs that answer for the API server ask who may speak for it; nobody does here.
            f"--requestheader-client-ca-file={authority.root}",
            "--requestheader-allowed-names=nobody",
            f"--kubelet-client-certificate={to_kubelets.certificate}",
            f"--kubelet-client-key={to_kubelets.key}",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            # Webhooks are called at the pods' addresses: this machine has no kube-proxy.
            "--enable-aggregator-routing=true",
        ]

    def _controllers(self, program: Path) -> list[str | Path]:
        config = self.authority.kubeconfig("controllers", SERVER, "system:kube-controller-manager")
        return [
            program,
            f"--kubeconfig={config}",
            f"--root-ca-file={self.authority.root}",
            f"--service-account-private-key-file={self.authority.folder / 'service-accounts.key'}",
            "--use-service-account-credentials=true",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ]

    def _scheduler(self, program: Path) -> list[str | Path]:
        config = self.authority.kubeconfig("scheduler", SERVER, "system:kube-scheduler")
        return [
            program,
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ]
