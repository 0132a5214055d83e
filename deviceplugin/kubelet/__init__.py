"""The kubelet's sockets: our device plugin servers, their registration, its list of pods."""
