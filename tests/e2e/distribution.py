"""A plugin of pytest: all tests of a folder go to the worker of its name, in their order."""

from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["pytest_xdist_make_scheduler"]


class ByFolder(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return str(PurePath(nodeid.partition("::")[0]).parent)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The first that waits is taken. Logs of a cluster are kept by the name of its worker."""
        for folder in self.workqueue:
            if PurePath(folder).name == node.gateway.id:
                self.workqueue.move_to_end(folder, last=False)
                break
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)
