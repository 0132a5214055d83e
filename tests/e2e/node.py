"""A worker node: a machine with containerd, kubelet and kube-proxy, as an administrator has it."""

import json
from pathlib import Path

import yaml

from tests.e2e import imagestore, nvidia_runtime
from tests.e2e.binaries import binaries
from tests.e2e.certificates import Authority
from tests.e2e.controlplane import ADDRESS, CLUSTER_DOMAIN, SERVER
from tests.e2e.daemons import Daemon
from tests.e2e.machine import Machine
from tests.e2e.sandbox import Sandbox, make_group, remove_group

__all__ = ["PAUSE_IMAGE", "PODS", "Node"]

PAUSE_IMAGE = "registry.k8s.io/pause:3.10.1"
PODS = "10.88.0.0/16"
SOCKET = "/run/containerd/containerd.sock"


class Node:
    """`number` gives it its name, its address and its pods' addresses."""

    def __init__(self, number: int, folder: Path, logs: Path, authority: Authority) -> None:
        self.number = number
        self.name = f"node{number}"
        self.folder = folder / self.name
        self.authority = authority
        self.pods = f"10.88.{number}.0/24"
        self.machine = Machine(self.name, f"10.77.0.{10 + number}", self.folder, logs)
        self.cgroup = f"{Sandbox.around_us().group}/{self.name}"
        self._programs = binaries()
        self._daemons: tuple[Daemon, ...] = ()
        self._write_settings()

    def stock(self, store: Path) -> None:
        """Before its first boot: the images of a store, as if pulled before."""
        imagestore.give(store, self.folder / "containerd")

    def boot(self) -> None:
        """Starts, or starts again after `crash`."""
        make_group(self.cgroup)
        self.machine.start(ADDRESS)
        run = self.machine.daemon
        self.containerd = run("containerd", self._containerd_command())
        self.kubelet = run("kubelet", self._kubelet_command())
        self.proxy = run("kube-proxy", self._proxy_command())
        self._daemons = (self.containerd, self.kubelet, self.proxy)
        self.containerd.start()
        self.await_containerd()

    def await_containerd(self) -> None:
        self.containerd.await_answer(lambda: "NAME" in self._ctr("namespaces", "list", check=False))

    def join(self) -> None:
        """After the images are there: pods may start from now on."""
        self.kubelet.start()
        self.proxy.start()

    def load(self, archive: Path) -> None:
        """Puts an image into the node's store, as a pull would."""
        self._ctr("--namespace=k8s.io", "images", "import", archive)

    def containers(self) -> list[str]:
        """Names of all containers that run, pods' sandboxes included."""
        listed = self._ctr("--namespace=k8s.io", "tasks", "list", "--quiet")
        return listed.split()

    def kill(self, container: str) -> None:
        self._ctr("--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)

    def crash(self) -> None:
        self.machine.power_off()
        for daemon in self._daemons:
            daemon.await_end()
        # As a boot would: a kubelet looks for the containers of every group it finds.
        remove_group(self.cgroup)

    def _ctr(self, *words: str | Path, check: bool = True) -> str:
        return self.machine.run(self._programs["ctr"], f"--address={SOCKET}", *words, check=check)

    def _write_settings(self) -> None:
        for name in ("kubelet", "containerd", "cni", "settings"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        settings = self.folder / "settings"
        (settings / "containerd.toml").write_text(self._containerd_settings())
        (settings / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_settings()))
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(self._cni_settings()))

    def _containerd_command(self) -> list[str | Path]:
        programs = self._programs["containerd"].parent
        return [
            *("env", f"PATH={programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
            *(self._programs["containerd"], "--config", self.folder / "settings/containerd.toml"),
        ]

    def _containerd_settings(self) -> str:
        return f"""\
version = 3
root = "{self.folder}/containerd"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
# Root of a virtual machine may lack CAP_SYS_RESOURCE; sandboxes could not start.
restrict_oom_score_adj = true
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{self.folder}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "{Path(nvidia_runtime.__file__)}"
SystemdCgroup = false
"""

    def _cni_settings(self) -> dict[str, object]:
        return {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    # Routed, not bridged: kube-proxy's rules see traffic between pods of one node.
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self.pods}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _kubelet_command(self) -> list[str | Path]:
        config = self.authority.kubeconfig(
            self.name, SERVER, f"system:node:{self.name}", ("system:nodes",)
        )
        return [
            self._programs["kubelet"],
            f"--kubeconfig={config}",
            f"--config={self.folder / 'settings/kubelet.yaml'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.machine.address}",
        ]

    def _kubelet_settings(self) -> dict[str, object]:
        serving = self.authority.issue(
            f"{self.name}-serving", f"system:node:{self.name}", hosts=(self.machine.address,)
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.authority.root)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "staticPodPath": "/var/lib/kubelet/manifests",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "clusterDNS": [ADDRESS],
            "clusterDomain": CLUSTER_DOMAIN,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            # A developer's disk is often nearly full; the tests are not about that.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
        }

    def _proxy_command(self) -> list[str | Path]:
        config = self.authority.kubeconfig(f"{self.name}-proxy", SERVER, "system:kube-proxy", ())
        return [
            self._programs["kube-proxy"],
            f"--kubeconfig={config}",
            f"--hostname-override={self.name}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS}",
            # These are limits of the whole machine, and are not ours to change.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ]
