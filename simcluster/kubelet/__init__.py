"""A stand-in for the kubelet over real gRPC: its device manager, its sockets, its containers."""

from simcluster.kubelet.pods import Container, Pod, Role
from simcluster.kubelet.stand_in import AdmissionError, Kubelet, StartError

__all__ = ["AdmissionError", "Container", "Kubelet", "Pod", "Role", "StartError"]
