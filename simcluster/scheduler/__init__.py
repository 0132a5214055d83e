"""A stand-in for kube-scheduler as far as an extender sees it: its queue, its cycle, its words."""

from simcluster.scheduler.extender import Extender, ExtenderError
from simcluster.scheduler.scheduler import Scheduler

__all__ = ["Extender", "ExtenderError", "Scheduler"]
