"""The command line of Aliquot, and the few values that the node and the cluster side share."""

__version__ = "0.1.0"
