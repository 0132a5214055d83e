"""Stand-ins for the parts of Kubernetes that Aliquot talks to: for the demo and for tests."""
