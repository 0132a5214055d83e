"""The web page and `/view`: what everybody may see of nodes, GPUs and pods, live and read-only."""

from scheduler_ext.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
