"""Sharing a GPU without Kubernetes: `aliquot run`, `aliquot ps`, and the runs of one user."""
